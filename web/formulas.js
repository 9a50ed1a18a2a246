// The sizes of classic and blocked filters, for the calculator without a server.
//
// The server plans in Rust (crates/inbloom/src/plan/, kinds/classic/plan.rs, kinds/blocked/plan.rs), and these
// are the same formulas, step by step and in the same order: a test compares 10,000 answers with those of
// `inbloom plan --json`. The models are explained in plan/model.rs. `plan` answers what /api/plan answers, for
// two kinds.

const BLOCK_BITS = 512;
// Both lines of a two-line key lie in one range of at most so many blocks.
const RANGE_BLOCKS = 16383;
// The server plans up to 2^56 bits. Numbers of JavaScript are exact up to here, which is 1 PiB.
const MAX_BITS = 2 ** 53;
const MAX_ITEMS = 1e15;
const MIN_RATE = 1e-12;
const DEFAULT_RATE = 0.01;
// A second line costs a second cache miss, so it has to save this share of the bits.
const SECOND_LINE_SAVES = 1.15;
// Up to this many throws the distribution of set bits is computed exactly.
const EXACT_THROWS = 160;
// The number of keys at which bits per key are shown if there is no number.
const MANY = 1e9;
// A kind is worth leaving the default for if it saves this share of the memory.
const WORTH = 0.2;

const TIERS = { "very-small": 4, small: 8, middle: 16, high: 32 };
const KINDS = ["classic", "blocked"];

// Models.

// A power by repeated squaring, with the same products in the same order as in Rust.
function powi(base, exponent) {
  let square = base;
  let left = exponent;
  let power = 1;
  while (left !== 0) {
    if (left % 2 === 1) power *= square;
    square *= square;
    left = Math.floor(left / 2);
  }
  return power;
}

// The rate of a classic filter of m bits and k probes that holds n keys.
function classicRate(n, m, k) {
  if (n <= 0) return 0;
  const throws = n * k;
  if (n === Math.floor(n) && throws <= EXACT_THROWS) return exactClassicRate(throws, m, k);
  if (Math.floor(n) * k <= EXACT_THROWS) {
    const below = classicRate(Math.floor(n), m, k);
    const above = classicRate(Math.ceil(n), m, k);
    return below + (n - Math.trunc(n)) * (above - below);
  }
  const empty = Math.exp(throws * Math.log1p(-1 / m));
  const bothEmpty = m > 2 ? Math.exp(throws * Math.log1p(-2 / m)) : 0;
  const variance = Math.max(empty / m + (1 - 1 / m) * bothEmpty - empty * empty, 0);
  const full = 1 - empty;
  const exponent = k * Math.log(full) + (0.5 * k * (k - 1) * variance) / (full * full);
  return Math.min(Math.exp(exponent), 1);
}

function exactClassicRate(throws, m, k) {
  const share = new Float64Array(throws + 1);
  share[0] = 1;
  for (let thrown = 0; thrown < throws; thrown++) {
    for (let j = thrown; j >= 0; j--) {
      const hitsOld = j / m;
      const here = share[j];
      share[j] = here * hitsOld;
      share[j + 1] += here * Math.max(1 - hitsOld, 0);
    }
  }
  let sum = 0;
  share.forEach((p, j) => {
    sum += p * powi(Math.min(j / m, 1), k);
  });
  return sum;
}

// The rounds of probes that a key takes in a line: one into every word, or one into every pair of words.
function roundsOf(probes) {
  return { full: Math.floor(probes / 8), half: Math.floor((probes % 8) / 4) };
}

const DISTINCT = 3;
const CHOOSE = [
  [1, 0, 0],
  [1, 1, 0],
  [1, 2, 1],
];
const WORD = 64;

function grid() {
  return [
    [0, 0, 0],
    [0, 0, 0],
    [0, 0, 0],
  ];
}

// That the probes of an absent key into a pair of words all hit, as weights of sums over spared cells.
function pairWeights(rounds, usable) {
  const needed = grid();
  needed[0][0] = 1;
  const probe = (chance) => {
    for (let i = DISTINCT - 1; i >= 0; i--) {
      for (let j = DISTINCT - 1; j >= 0; j--) {
        const here = needed[i][j];
        const one = (chance[0] * (usable[0] - i)) / WORD;
        const other = (chance[1] * (usable[1] - j)) / WORD;
        if (here > 0) {
          needed[i][j] = here * (1 - one - other);
          if (one > 0) needed[i + 1][j] += here * one;
          if (other > 0) needed[i][j + 1] += here * other;
        }
      }
    }
  };
  for (let round = 0; round < rounds.full; round++) {
    probe([1, 0]);
    probe([0, 1]);
  }
  for (let round = 0; round < rounds.half; round++) probe([0.5, 0.5]);
  const weights = grid();
  for (let i = 0; i < DISTINCT; i++) {
    for (let j = 0; j < DISTINCT; j++) {
      for (let a = 0; a <= i; a++) {
        for (let b = 0; b <= j; b++) {
          const sign = (a + b) % 2 === 0 ? 1 : -1;
          weights[a][b] += needed[i][j] * sign * CHOOSE[i][a] * CHOOSE[j][b];
        }
      }
    }
  }
  return weights;
}

// Probability that a key of a line spares some cells of a word and of its partner.
function spared(rounds, here, there) {
  return (
    powi((1 - here / WORD) * (1 - there / WORD), rounds.full) *
    powi(1 - (here + there) / (2 * WORD), rounds.half)
  );
}

// The rate of a blocked filter of so many blocks, where keys have one line or two.
function linesRate(n, blocks, lines, perLine) {
  if (n <= 0) return 0;
  const rounds = roundsOf(perLine);
  const chance = Math.min(lines / blocks, 1);
  const load = n * chance;
  if (load > 4096) return 1;
  const plain = pairWeights(rounds, [WORD, WORD]);
  const reserved = pairWeights(rounds, [WORD, WORD - 1]);
  const terms = [];
  for (let i = 0; i < DISTINCT; i++) {
    for (let j = 0; j < DISTINCT; j++) {
      if (plain[i][j] !== 0 || reserved[i][j] !== 0) {
        terms.push([Math.log(spared(rounds, i, j)), plain[i][j], reserved[i][j]]);
      }
    }
  }
  const oneLine = expectationBinomial(n, chance, (keys) => {
    let hit = 0;
    let lastHit = 0;
    for (const [log, plainWeight, reservedWeight] of terms) {
      const left = Math.exp(keys * log);
      hit += plainWeight * left;
      lastHit += reservedWeight * left;
    }
    return powi(Math.max(hit, 0), 3) * Math.max(lastHit, 0);
  });
  const indistinct = load * 2 ** -64;
  return Math.min(powi(oneLine, lines) + indistinct, 1);
}

// The mean of f over a binomial number: sums outwards from the mode until the terms vanish.
function expectationBinomial(n, chance, f) {
  if (chance >= 1) return f(n);
  const odds = chance / (1 - chance);
  const mode = Math.min(Math.floor((n + 1) * chance), n);
  let sum = f(mode);
  let total = 1;
  let weight = 1;
  let keys = mode;
  while (keys < n && weight > 1e-22) {
    weight *= ((n - keys) / (keys + 1)) * odds;
    keys += 1;
    sum += weight * f(keys);
    total += weight;
  }
  weight = 1;
  keys = mode;
  while (keys > 0 && weight > 1e-22) {
    weight *= keys / ((n - keys + 1) * odds);
    keys -= 1;
    sum += weight * f(keys);
    total += weight;
  }
  return sum / total;
}

// Shapes: how the probes of a key lie.

function ranges(blocks) {
  return Math.ceil(blocks / RANGE_BLOCKS);
}

function roundUpToRanges(blocks) {
  const count = ranges(blocks);
  return Math.ceil(blocks / count) * count;
}

function roundDownToRanges(blocks) {
  let rounded = blocks;
  while (rounded % ranges(rounded) !== 0) rounded -= rounded % ranges(rounded);
  return Math.max(rounded, 2);
}

function shapesOf(kind, probes) {
  const all = [];
  if (kind === "classic") {
    for (let k = 1; k <= 64; k++) all.push({ kind, probes: k, lines: 1, perLine: k });
  } else {
    for (const lines of [1, 2]) {
      for (const perLine of [4, 8, 12, 16]) {
        all.push({ kind, probes: lines * perLine, lines, perLine });
      }
    }
  }
  return all.filter((shape) => probes === null || shape.probes === probes);
}

function shapeRate(shape, n, bits) {
  if (shape.kind === "classic") return classicRate(n, bits, shape.probes);
  return linesRate(n, Math.floor(bits / BLOCK_BITS), shape.lines, shape.perLine);
}

// The most bits of a shape in at most so many; null if there are too few, or too many.
function roundDown(shape, bits) {
  if (bits > MAX_BITS) return null;
  if (shape.kind === "classic") return bits > 0 ? bits : null;
  const blocks = Math.floor(bits / BLOCK_BITS);
  if (blocks < shape.lines) return null;
  return (shape.lines === 1 ? blocks : roundDownToRanges(blocks)) * BLOCK_BITS;
}

// The smallest number from low to high for which `fits` holds, if it holds from some number on.
function smallest(low, high, fits) {
  let step = 1;
  let bottom = low;
  let top = low;
  while (top < high && !fits(top)) {
    bottom = top + 1;
    top = Math.min(top + step, high);
    step *= 2;
  }
  if (!fits(top)) return null;
  let upper = top;
  while (bottom < upper) {
    const middle = bottom + Math.floor((upper - bottom) / 2);
    if (fits(middle)) upper = middle;
    else bottom = middle + 1;
  }
  return bottom;
}

function largest(max, fits) {
  let low = 0;
  let high = max + 1;
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return low;
}

function fewestBitsOf(shape, n, rate, bound) {
  if (shape.kind === "classic") {
    const low = Math.max(Math.floor(bound * 0.999), 1);
    return smallest(low, MAX_BITS, (bits) => shapeRate(shape, n, bits) <= rate);
  }
  const low = Math.max(Math.floor(bound / BLOCK_BITS), shape.lines);
  const high = MAX_BITS / BLOCK_BITS;
  let blocks = smallest(low, high, (it) => shapeRate(shape, n, it * BLOCK_BITS) <= rate);
  if (blocks === null) return null;
  if (shape.lines === 2) blocks = roundUpToRanges(blocks);
  return blocks <= high ? blocks * BLOCK_BITS : null;
}

// Plans.

class Refusal extends Error {}

function fewestBits(shapes, items, rate) {
  const n = Math.max(items, 1);
  let best = null;
  for (const shape of shapes) {
    const k = shape.probes;
    const bound = (-k * n) / Math.log1p(-Math.pow(rate, 1 / k));
    if (best !== null && bound > best.bits * SECOND_LINE_SAVES) continue;
    if (bound > MAX_BITS) continue;
    const bits = fewestBitsOf(shape, n, rate, bound);
    if (bits === null) continue;
    const handicap = best === null ? 0 : shape.lines - best.shape.lines;
    if (best === null || bits * Math.pow(SECOND_LINE_SAVES, handicap) < best.bits) {
      best = { shape, bits };
    }
  }
  if (best === null) throw new Refusal("the filter would be larger than 1 PiB: ask inbloom plan");
  return planOf(best.shape, items, rate, best.bits);
}

function lowestRate(shapes, given, items, wanted) {
  const n = Math.max(items, 1);
  let best = null;
  let lowest = null;
  for (const shape of shapes) {
    const bits = roundDown(shape, wanted);
    if (bits === null) continue;
    const rate = shapeRate(shape, n, bits);
    if (lowest === null || rate < lowest.rate) lowest = { shape, bits, rate };
    let better = best === null;
    if (best !== null && shape.lines > best.shape.lines) {
      const more = roundDown(best.shape, Math.floor(best.bits * SECOND_LINE_SAVES));
      better = more === null || rate < shapeRate(best.shape, n, more);
    } else if (best !== null) {
      better = rate < best.rate;
    }
    if (better) best = { shape, bits, rate };
  }
  if (best !== null && given.rate !== null && best.rate > given.rate) best = lowest;
  if (best === null) throw new Refusal("too few bytes: a filter has at least one block of 64");
  if (given.rate !== null && best.rate > given.rate) {
    throw new Refusal(`the lowest rate in this memory is ${best.rate.toPrecision(3)}`);
  }
  return planOf(best.shape, items, given.rate ?? best.rate, best.bits);
}

function mostItems(shapes, wanted, rate) {
  let best = null;
  for (const shape of shapes) {
    const bits = roundDown(shape, wanted);
    if (bits === null) continue;
    const items = largest(MAX_ITEMS, (n) => shapeRate(shape, n, bits) <= rate);
    const handicap = best === null ? 0 : shape.lines - best.shape.lines;
    if (best === null || items > best.items * Math.pow(SECOND_LINE_SAVES, handicap)) {
      best = { shape, bits, items };
    }
  }
  if (best === null) throw new Refusal("too few bytes: a filter has at least one block of 64");
  if (best.items === 0) throw new Refusal("not even one key keeps this rate in this memory");
  return planOf(best.shape, best.items, rate, best.bits);
}

function planOf(shape, items, rate, bits) {
  const bytes = Math.ceil(bits / 64) * 8;
  return { shape, kind: shape.kind, items, rate, bits, bytes };
}

function planKind(kind, given) {
  const rate = given.rate ?? impliedRate(given);
  if (rate !== null && rate < MIN_RATE) throw new Refusal("rates below 1e-12 are not offered");
  if (given.items !== null && given.items > MAX_ITEMS) throw new Refusal("at most 10^15 keys");
  const perKey = given.bitsPerKey;
  if (perKey !== null && perKey > 4096) throw new Refusal("at most 4096 bits per key");
  const shapes = shapesOf(kind, given.probes);
  if (shapes.length === 0) throw new Refusal(`${kind} has no shape of ${given.probes} probes`);
  const known = { ...given, rate };
  const { items, bytes } = given;
  if (items !== null && bytes !== null && perKey !== null) {
    throw new Refusal("bits per key follow from keys and memory: leave one out");
  }
  if (items !== null && bytes === null && perKey === null) {
    return fewestBits(shapes, items, rate ?? DEFAULT_RATE);
  }
  if (items !== null && bytes !== null) return lowestRate(shapes, known, items, bytes * 8);
  if (items !== null) {
    const bits = Math.ceil(Math.max(items, 1) * perKey);
    if (bits > MAX_BITS) throw new Refusal("the filter would be larger than 1 PiB: ask inbloom plan");
    return lowestRate(shapes, known, items, roundUp(kind, shapes, bits));
  }
  if (bytes !== null && perKey === null) {
    return mostItems(shapes, bytes * 8, rate ?? DEFAULT_RATE);
  }
  if (bytes !== null) return lowestRate(shapes, known, Math.floor((bytes * 8) / perKey), bytes * 8);
  throw new Refusal("give the number of keys, or the memory it may take");
}

// Bits per key is a wish, not a limit: it is rounded up to what the kind can use.
function roundUp(kind, shapes, bits) {
  if (kind === "classic") return bits;
  const blocks = Math.ceil(bits / BLOCK_BITS);
  const isTwo = shapes.every((shape) => shape.lines === 2);
  return (isTwo ? roundUpToRanges(Math.max(blocks, 2)) : blocks) * BLOCK_BITS;
}

// The rate that a number of probes stands for, if nothing else tells the rate.
function impliedRate(given) {
  const follows =
    given.rate !== null ||
    given.bitsPerKey !== null ||
    (given.items !== null && given.bytes !== null);
  return given.probes !== null && !follows ? Math.pow(0.5, given.probes) : null;
}

function rateAt(plan, items) {
  return shapeRate(plan.shape, items, plan.bits);
}

// What people type: the grammar of the command line (crates/inbloom-server/src/units.rs).

const THOUSANDS = ["", "k", "m", "g", "t", "p"];

function unitOf(suffix, isBytes) {
  let letter = suffix;
  let isBinary = false;
  if (isBytes && letter === "b") letter = "";
  else if (isBytes && letter.endsWith("b")) {
    letter = letter.slice(0, -1);
    if (letter.endsWith("i")) letter = letter.slice(0, -1);
    isBinary = true;
  } else if (letter.endsWith("i")) {
    letter = letter.slice(0, -1);
    isBinary = true;
  }
  const exponent = THOUSANDS.indexOf(letter);
  if (exponent < 0 || (isBinary && exponent === 0)) return null;
  return (isBinary ? 1024n : 1000n) ** BigInt(exponent);
}

function parseWhole(text, isBytes) {
  const found = /^(\d(?:[\d_]*\d)?)(?:\.(\d(?:[\d_]*\d)?))?(?:[eE]([+-]?)(\d{1,4}))?([a-zA-Z]*)$/.exec(text);
  const unit = found && unitOf(found[5].toLowerCase(), isBytes);
  if (!found || unit === null) return null;
  const fraction = (found[2] ?? "").replaceAll("_", "");
  const digits = BigInt(found[1].replaceAll("_", "") + fraction);
  const exponent = Number(`${found[3] ?? ""}${found[4] ?? 0}`) - fraction.length;
  const scaled = digits * unit;
  if (exponent >= 0) return Number(scaled * 10n ** BigInt(exponent));
  const shift = 10n ** BigInt(-exponent);
  return scaled % shift === 0n ? Number(scaled / shift) : null;
}

function parseRate(text) {
  const number = text.endsWith("%") ? Number(text.slice(0, -1)) / 100 : Number(text);
  return text.trim() !== "" && number > 0 && number < 1 ? number : null;
}

function fail(parameter, message) {
  throw { status: 400, code: "bad_value", parameter, message };
}

// The values of the parameters, null where they are not given.
function readQuestion(parameters) {
  const read = (name, parse, expected) => {
    const text = parameters[name] ?? "";
    if (text === "") return null;
    const value = parse(text);
    return value === null ? fail(name, `'${name}': expected ${expected}, got "${text}"`) : value;
  };
  const whole = (text) => parseWhole(text, false);
  const atLeastOne = (text) => parseWhole(text, false) || null;
  const tier = (text) => TIERS[text] ?? null;
  const probes = (text) => (/^\d{1,3}$/.test(text) && Number(text) <= 255 ? Number(text) : null);
  const positive = (text) => (Number(text) > 0 ? Number(text) : null);
  const count = "a whole number such as 1000000, 10e9 or 2.5M";
  const bits = read("bits", whole, count);
  const size = (text) => parseWhole(text, true);
  const bytes = read("bytes", size, "a number of bytes such as 1000000, 64MiB or 2.5G");
  const perKey = read("bits_per_key", positive, "a number above 0, such as 9.6");
  return {
    items: read("items", atLeastOne, `${count}, at least 1`),
    rate: read("rate", parseRate, "a rate between 0 and 1 such as 0.01, 1e-4 or 0.01%"),
    bytes: bytes ?? (bits === null ? null : Math.floor(bits / 8)),
    bitsPerKey: perKey ?? read("tier", tier, `one of ${Object.keys(TIERS).join(", ")}`),
    probes: read("probes", probes, "a number from 0 to 255") || null,
  };
}

// A number as Rust prints it: never with an exponent.
function decimal(number) {
  const [digits, exponent] = String(number).split("e");
  if (exponent === undefined) return digits;
  const [whole, fraction = ""] = digits.split(".");
  const power = Number(exponent);
  if (power < 0) return `0.${"0".repeat(-power - 1)}${whole}${fraction}`;
  return whole + fraction.padEnd(power, "0");
}

// Answers.

const SHARES = [0.25, 0.5, 0.75, 1, 1.5, 2];

function rowOf(row, hasTotals) {
  if (row.refused !== undefined) return { kind: row.kind, refused: row.refused };
  const { plan } = row;
  const { kind, items, rate, bits, bytes, shape } = plan;
  const total = (value) => (hasTotals ? value : null);
  return {
    kind,
    items: total(items),
    rate,
    bits: total(bits),
    bits_per_key: bits / Math.max(items, 1),
    bytes: total(bytes),
    probes: shape.probes,
    cache_lines: kind === "classic" ? shape.probes : shape.lines,
    merge: true,
    remove: false,
    grow: false,
    static: false,
    forget: false,
    width: null,
    growth: null,
    tightening: null,
    window_ms: null,
    window_keys: null,
    generations: null,
    curve: SHARES.map((share) => {
      return { share, items: total(items * share), rate: rateAt(plan, items * share) };
    }),
  };
}

// The default kind, unless the other saves a fifth.
function recommend(plans, hasTotals) {
  if (plans.length === 0) return null;
  const blocked = plans.find((plan) => plan.kind === "blocked");
  const smallest = plans.reduce((one, other) => (other.bytes < one.bytes ? other : one));
  const saves = (plan, of) => 1 - plan.bytes / of.bytes;
  let code = "only";
  let plan = smallest;
  if (blocked && saves(smallest, blocked) < WORTH) [code, plan] = ["default", blocked];
  else if (blocked) code = "smaller";
  const total = (bytes) => (hasTotals ? bytes : null);
  const isOther = blocked && blocked !== plan;
  const alternative = isOther
    ? { code: "faster", kind: "blocked", bytes: total(blocked.bytes), saves: saves(blocked, plan) }
    : null;
  return { code, kind: plan.kind, bytes: total(plan.bytes), rate: plan.rate, alternative };
}

function curvesOf(plan) {
  const byKeys = [];
  for (let step = 0; step <= 60; step++) {
    const items = (plan.items * 2 * step) / 60;
    byKeys.push({ items: Math.round(items), rate: rateAt(plan, items) });
  }
  const byRate = [];
  for (let step = 0; step <= 18; step++) {
    const rate = step === 0 ? 0.5 : Math.pow(10, -step / 2);
    const given = { items: plan.items, rate, bytes: null, bitsPerKey: null, probes: null };
    try {
      byRate.push({ rate, bytes: planKind(plan.kind, given).bytes });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
  }
  const { items, rate, bytes } = plan;
  return { rate_by_keys: byKeys, bytes_by_rate: byRate, point: { items, rate, bytes } };
}

function commandsOf(plan) {
  const { kind, items } = plan;
  const rate = decimal(plan.rate);
  // Without NONSCALING a blocked filter takes more memory, to grow later.
  const options = kind === "blocked" ? ["NONSCALING"] : ["KIND", kind];
  const quoted = options.map((option) => `"${option}"`);
  const words = ['"BF.RESERVE"', '"filter"', rate, decimal(items), ...quoted];
  const variant = kind === "blocked" ? "Blocked" : "Classic";
  const call = `Plan::builder(Kind::${variant}).items(${decimal(items)}).rate(${rate}).build()?`;
  return {
    cli: `inbloom build -o filter.ib --kind ${kind} -n ${decimal(items)} -p ${rate}`,
    reserve: `BF.RESERVE filter ${rate} ${decimal(items)} ${options.join(" ")}`,
    rust: `let plan = ${call};\nlet mut filter = Filter::new(plan)?;`,
    python: `import redis\n\nserver = redis.Redis(port=7379)\nserver.execute_command(${words.join(", ")})`,
  };
}

// Plans both kinds from an object of texts: `kinds` are the rows of `inbloom plan --json`, and `plans` are
// those of the kinds that can be planned.
export function compareKinds(parameters) {
  const question = readQuestion(parameters);
  const perKey = question.rate !== null || question.bitsPerKey !== null;
  const hasTotals =
    !(question.probes !== null && perKey) || question.items !== null || question.bytes !== null;
  const given = hasTotals ? question : { ...question, items: MANY };
  const rows = KINDS.map((kind) => {
    try {
      return { kind, plan: planKind(kind, given) };
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return { kind, refused: error.message };
    }
  });
  const kinds = rows.map((row) => rowOf(row, hasTotals));
  const plans = rows.filter((row) => row.plan !== undefined).map((row) => row.plan);
  return { question, hasTotals, kinds, plans };
}

// Answers what /api/plan answers to these parameters, for both kinds. Throws
// { status, code, message, parameter?, kinds? } where /api/plan answers an error.
export function plan(parameters) {
  const { question, hasTotals, kinds, plans } = compareKinds(parameters);
  if (plans.length === 0) {
    const message = kinds.map((row) => `${row.kind}: ${row.refused}`).join("\n");
    throw { status: 422, code: "unplannable", message, kinds };
  }
  const recommendation = recommend(plans, hasTotals);
  const wanted = parameters.kind || recommendation.kind;
  const chosen = plans.find((it) => it.kind === wanted) ?? null;
  return {
    kinds,
    chosen: chosen === null ? null : chosen.kind,
    recommendation,
    implied_rate: impliedRate(question),
    curves: chosen !== null && hasTotals ? curvesOf(chosen) : null,
    commands: chosen !== null && hasTotals ? commandsOf(chosen) : null,
  };
}
