// Creates and updates elements; unchanged parts of the page are not written again.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function put(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// Gives `place` one child per item, in the order of the items. An item whose key was there before
// keeps its child. Keys need not be unique: two long keys may be shortened to the same text.
export function list(place, items, key, make, update) {
  const kept = new Map([...place.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  items.forEach((item, index) => {
    const name = String(key(item, index));
    let child = kept.get(name);
    kept.delete(name);
    if (!child) {
      child = make(item, index);
      child.dataset.key = name;
    }
    const next = previous ? previous.nextSibling : place.firstChild;
    if (next !== child) place.insertBefore(child, next);
    previous = child;
    update(child, item, index);
  });
  while (place.children.length > items.length) place.lastChild.remove();
}
