// A long list of which only what can be seen is in the page. Heights are measured as rows are drawn and guessed before that.
// Owns which rows are drawn and where the scroll stands: at the end it stays at the end. Knows nothing of what a row shows.

import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../html.js";
import { Icon } from "../shell/icons.js";
import { useAgain } from "../store.js";

const GUESS_PX = 160;
const BEYOND_PX = 800; // drawn above and below what can be seen
const NEAR_END_PX = 40;

/** `items` have a `key`; `row` draws one; `end` stands behind the last. `version` changes when any row may have. */
export function WindowedList({ items, row, end, label, version, identity }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(new Map());
  const isAtEnd = useRef(true);
  const lastTop = useRef(0);
  const shownIdentity = useRef(identity);
  const again = useAgain();
  if (shownIdentity.current !== identity) {
    shownIdentity.current = identity;
    heights.current = new Map();
    isAtEnd.current = true;
  }
  const view = scroller.current;
  const height = (item) => heights.current.get(item.key) ?? GUESS_PX;
  const span = visibleSpan(items, height, view, isAtEnd.current);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const isChanged = measure(element, heights.current);
    if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    if (!view || (isChanged && isOther(visibleSpan(items, height, element, isAtEnd.current), span))) again();
  });

  useLayoutEffect(() => {
    const element = scroller.current;
    const column = element?.firstElementChild;
    if (!element || !column) return undefined;
    const observer = new ResizeObserver(() => {
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(element);
    observer.observe(column);
    return () => observer.disconnect();
  }, []);

  const scrolled = ({ currentTarget }) => {
    const { scrollTop, clientHeight, scrollHeight } = currentTarget;
    const wasAtEnd = isAtEnd.current;
    // Text that grew since moves the end away too: only who scrolls up leaves it.
    if (scrollHeight - scrollTop - clientHeight < NEAR_END_PX) isAtEnd.current = true;
    else if (scrollTop < lastTop.current - 1) isAtEnd.current = false;
    lastTop.current = scrollTop;
    const next = visibleSpan(items, height, currentTarget, isAtEnd.current);
    if (isOther(next, span) || wasAtEnd !== isAtEnd.current) again();
  };
  const goToEnd = () => {
    isAtEnd.current = true;
    again();
  };

  return html`<div class="scroller" ref=${scroller} onScroll=${scrolled} tabindex="0" role="log" aria-label=${label} aria-live="off" data-version=${version}>
    <div class="column">
      <div style=${{ height: `${span.above}px` }}></div>
      ${items.slice(span.first, span.last).map((item) => html`<div key=${item.key} data-row=${item.key}>${row(item)}</div>`)}
      <div style=${{ height: `${span.below}px` }}></div>
      ${end}
    </div>
  </div>
  ${!isAtEnd.current && html`<div class="to-end"><button class="icon" aria-label="To the end" title="To the end" onClick=${goToEnd}><${Icon} name="down" /></button></div>`}`;
}

function visibleSpan(items, height, view, isAtEnd) {
  const total = items.reduce((sum, item) => sum + height(item), 0);
  const seen = view?.clientHeight ?? 800;
  const top = isAtEnd ? Math.max(0, total - seen) : view.scrollTop;
  let first = 0;
  let above = 0;
  while (first < items.length && above + height(items[first]) < top - BEYOND_PX) above += height(items[first++]);
  let last = first;
  let reached = above;
  while (last < items.length && reached < top + seen + BEYOND_PX) reached += height(items[last++]);
  return { first, last, above, below: total - reached };
}

/** A row that grows changes nothing here: it is drawn, and its own height is not asked for. */
function isOther(next, span) {
  return next.first !== span.first || next.last !== span.last || next.above !== span.above || next.below !== span.below;
}

/** Measure what is drawn. Return whether a height differs from what was thought. */
function measure(element, heights) {
  let isChanged = false;
  for (const drawn of element.querySelectorAll("[data-row]")) {
    const px = drawn.offsetHeight;
    const key = Number(drawn.dataset.row);
    if (px && Math.abs((heights.get(key) ?? -1) - px) > 1) {
      heights.set(key, px);
      isChanged = true;
    }
  }
  return isChanged;
}
