// The keys of a list, after the listbox pattern of the ARIA authoring practices. Pure.

/**
 * Returns the place, from 0, to which a key moves from `at` (-1 for none) in a list of `count` rows
 * with `page` rows to a page; `null` for a key that does not move.
 */
export function placeAfterKey(event, at, count, page) {
  if (event.altKey || event.ctrlKey || event.metaKey || count === 0) return null;
  const last = count - 1;
  switch (event.key) {
    case "ArrowDown":
      return Math.min(at + 1, last);
    case "ArrowUp":
      return Math.max(at - 1, 0);
    case "PageDown":
      return Math.min(Math.max(at, 0) + page, last);
    case "PageUp":
      return Math.max(at - page, 0);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return null;
  }
}
