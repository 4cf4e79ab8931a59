// Elements, made and kept up to date without touching what stays the same.

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

// One child of `place` for each of `items`, in their order; a key that stays keeps its child. Keys
// may be alike, as two long ones are that were shortened.
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
