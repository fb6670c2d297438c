// Elements. Text from the API only ever becomes a text node or an attribute's value: key names come from strangers.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `el("a", { href, class: "key" }, "text", child)`. Functions are listeners; null and false are left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same, of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else set(element, name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets or takes away an attribute, if that changes anything. */
export function set(element, name, value) {
  if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Sets the text, if that changes anything: an untouched node is not laid out again, nor is a selection in it lost. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
