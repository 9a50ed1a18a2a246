// Three filters small enough to watch: bits, counters and generations. They only teach: their hash
// is not the server's, and their arrays are tiny on purpose.

// Two 32-bit hashes of a word, by FNV-1a and a finalizer that spreads short words.
function hashes(word) {
  const bytes = new TextEncoder().encode(word);
  return [0x811c9dc5, 0x9e3779b9].map((seed) => {
    let hash = seed;
    for (const byte of bytes) hash = Math.imul(hash ^ byte, 0x01000193);
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
    return (hash ^ (hash >>> 16)) >>> 0;
  });
}

// The different positions of a word in an array of `size`, which is a power of two.
export function positionsOf(word, probes, size) {
  const [first, second] = hashes(word);
  // An odd step visits all positions of a power of two before it repeats one.
  return Array.from(
    { length: probes },
    (_, index) => ((first + index * (second | 1)) >>> 0) % size,
  );
}

// Bits: a word sets its positions, and a query tests them.
export class ToyBloom {
  constructor(size = 64, probes = 3) {
    Object.assign(this, { size, probes, words: [], bits: new Array(size).fill(false) });
  }

  positions(word) {
    return positionsOf(word, this.probes, this.size);
  }

  contains(word) {
    return this.positions(word).every((at) => this.bits[at]);
  }

  // Returns whether the filter took the word for a new one.
  add(word) {
    const isNew = !this.contains(word);
    for (const at of this.positions(word)) this.bits[at] = true;
    if (!this.words.includes(word)) this.words.push(word);
    return isNew;
  }

  get fill() {
    return this.bits.filter(Boolean).length / this.size;
  }

  // The chance that all positions of a word that was never added are set.
  get rate() {
    return this.fill ** this.probes;
  }

  // The words that set a position.
  owners(at) {
    return this.words.filter((word) => this.positions(word).includes(at));
  }

  // A word that was never added and seems to be present, or null if none of many candidates does.
  findFalsePositive(candidates) {
    for (const word of candidates) {
      if (!this.words.includes(word) && this.contains(word)) return word;
    }
    return null;
  }
}

// Counters: a word raises its positions, so that it can be removed without hurting the others.
export class ToyCounting {
  constructor(size = 32, probes = 3) {
    Object.assign(this, { size, probes, words: [], counters: new Array(size).fill(0) });
  }

  positions(word) {
    return positionsOf(word, this.probes, this.size);
  }

  contains(word) {
    return this.positions(word).every((at) => this.counters[at] > 0);
  }

  add(word) {
    if (this.words.includes(word)) return;
    for (const at of this.positions(word)) this.counters[at] += 1;
    this.words.push(word);
  }

  // Lowers the counters of a word, but only if it seems to be present. Returns whether it did.
  remove(word) {
    if (!this.contains(word)) return false;
    for (const at of this.positions(word)) this.counters[at] -= 1;
    this.words = this.words.filter((other) => other !== word);
    return true;
  }
}

// Generations: new words go to the youngest, and time removes the oldest as a whole.
export class ToyWindow {
  constructor(generations = 4, size = 32, probes = 3) {
    Object.assign(this, {
      generations: Array.from({ length: generations }, () => new ToyBloom(size, probes)),
      size,
      probes,
    });
  }

  add(word) {
    return this.generations[0].add(word);
  }

  // The age of the youngest generation that has the word, or -1.
  age(word) {
    return this.generations.findIndex((generation) => generation.contains(word));
  }

  // Moves time on by one step. Returns the words that are forgotten.
  tick() {
    const oldest = this.generations.pop();
    this.generations.unshift(new ToyBloom(this.size, this.probes));
    return oldest.words.filter((word) => this.age(word) < 0);
  }
}

const CONSONANTS = "bdfgklmnprstvz";
const VOWELS = "aeiou";

// Words that sound like words, always the same ones.
export function* inventWords(seed = 1) {
  let state = seed;
  const pick = (letters) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return letters[(state >>> 16) % letters.length];
  };
  for (let index = 0; index < 2000; index += 1) {
    yield (
      pick(CONSONANTS) +
      pick(VOWELS) +
      pick(CONSONANTS) +
      pick(VOWELS) +
      (index % 2 ? pick(CONSONANTS) : "")
    );
  }
}
