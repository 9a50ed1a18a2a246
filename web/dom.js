// Builds DOM trees and keeps the page equal to them.
//
// A screen is a function from state to a tree. `show` changes the page where it differs from the
// new tree and leaves the rest alone, so focus, selection and scroll positions survive a refresh
// each second. All text goes through text nodes: names and keys are untrusted bytes, and nothing
// here parses markup.

const SVG = "http://www.w3.org/2000/svg";

// Creates an HTML element. `on` holds event handlers, `style` holds CSS properties, a boolean sets
// or leaves out an attribute, and null and false children are skipped.
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

// Creates an SVG element in the same way.
export function s(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(node, value);
    else if (name === "style") setStyle(node, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(
    ...children
      .flat(Infinity)
      .filter((child) => child !== null && child !== undefined && child !== false),
  );
  return node;
}

// Sets CSS properties one by one: a style attribute would need an exception from the page's content
// security policy.
function setStyle(node, style) {
  node.bloomStyle = style;
  for (const [property, value] of Object.entries(style)) node.style.setProperty(property, value);
}

// Handlers hang on the node, behind one listener for each type, so that `show` can replace them.
function listen(node, handlers) {
  node.bloomHandlers = handlers;
  node.bloomListening ??= new Set();
  for (const type of Object.keys(handlers)) {
    if (node.bloomListening.has(type)) continue;
    node.bloomListening.add(type);
    node.addEventListener(type, (event) => node.bloomHandlers?.[type]?.(event));
  }
}

// Makes the children of `parent` equal to `children`.
export function show(parent, ...children) {
  const wanted = document.createElement(parent.tagName);
  wanted.append(...children.flat(Infinity).filter(Boolean));
  matchChildren(parent, wanted);
}

function matchChildren(parent, wanted) {
  let old = parent.firstChild;
  for (const next of [...wanted.childNodes]) {
    if (old && isAlike(old, next)) {
      match(old, next);
      old = old.nextSibling;
    } else if (old) {
      const after = old.nextSibling;
      parent.replaceChild(next, old);
      old = after;
    } else {
      parent.append(next);
    }
  }
  while (old) {
    const after = old.nextSibling;
    old.remove();
    old = after;
  }
}

// A `data-key` says that two nodes are about the same thing.
function isAlike(old, next) {
  return (
    old.nodeType === next.nodeType &&
    old.nodeName === next.nodeName &&
    (old.nodeType !== Node.ELEMENT_NODE ||
      old.getAttribute("data-key") === next.getAttribute("data-key"))
  );
}

function match(old, next) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
    return;
  }
  // A node that draws itself, such as a plot that follows its width, gets the new data.
  if (old.bloomUpdate) {
    old.bloomUpdate(next.bloomData);
    return;
  }
  matchAttributes(old, next);
  listen(old, next.bloomHandlers ?? {});
  matchStyle(old, next.bloomStyle ?? {});
  // Before its options move from one to the other.
  const chosen = next.value;
  matchChildren(old, next);
  if (old instanceof HTMLInputElement) matchInput(old, next);
  if (old instanceof HTMLSelectElement && document.activeElement !== old) old.value = chosen;
}

function matchAttributes(old, next) {
  for (const { name } of [...old.attributes]) {
    // The reader opens and closes a <details>; styles are matched by property.
    const isReaders = name === "open" && old instanceof HTMLDetailsElement;
    if (name !== "style" && !isReaders && !next.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function matchStyle(old, style) {
  for (const property of Object.keys(old.bloomStyle ?? {})) {
    if (!(property in style)) old.style.removeProperty(property);
  }
  for (const [property, value] of Object.entries(style)) {
    if (old.bloomStyle?.[property] !== value) old.style.setProperty(property, value);
  }
  old.bloomStyle = style;
}

// What is typed wins over what was drawn, and a field without a value is the reader's alone.
function matchInput(old, next) {
  if (old.type === "checkbox" || old.type === "radio") old.checked = next.hasAttribute("checked");
  else if (document.activeElement !== old && next.hasAttribute("value")) {
    old.value = next.getAttribute("value");
  }
}

// An icon: one path on a grid of 24, in the color of the text around it.
export function icon(path, attributes) {
  return s(
    "svg",
    { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", ...attributes },
    s("path", { d: path }),
  );
}

// The sign of inbloom: a flower of six bits.
export function logo() {
  const petals = [0, 60, 120, 180, 240, 300].map((degrees) => {
    const angle = (degrees * Math.PI) / 180;
    return s("circle", {
      class: degrees % 120 === 0 ? "petal" : "petal pale",
      cx: (12 + 7 * Math.sin(angle)).toFixed(2),
      cy: (12 - 7 * Math.cos(angle)).toFixed(2),
      r: 3.3,
    });
  });
  return s(
    "svg",
    { class: "logo", viewBox: "0 0 24 24", "aria-hidden": "true" },
    petals,
    s("circle", { class: "heart", cx: 12, cy: 12, r: 2.7 }),
  );
}

// Copies text, also where the page has no clipboard: over plain HTTP only localhost has one.
export async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused: try the older way.
    }
  }
  const box = h("textarea", { class: "offscreen", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  return copied;
}
