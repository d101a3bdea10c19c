// Small helpers for the document.

export const byId = (id) => document.getElementById(id);

/** An element with properties; children are nodes or texts, never HTML. */
export function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** Show or hide elements. */
export function show(isShown, ...elements) {
  for (const element of elements) element.hidden = !isShown;
}

/** Let the browser draw and answer before going on with long work. */
export const breathe = () => new Promise((resolve) => setTimeout(resolve, 0));
