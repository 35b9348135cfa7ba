// Icons as paths of our own on a grid of 16, drawn with the text's colour.

import { html } from "../html.js";

const PATHS = {
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  plus: "M8 3v10M3 8h10",
  back: "M9.5 3.5 5 8l4.5 4.5",
  down: "M8 3v10M3.5 8.5 8 13l4.5-4.5",
  talks: "M3 3.5h10v7H7.5L4.5 13v-2.5H3z",
  files: "M4.5 2.5h5l3 3v8h-8zM9.5 2.5v3h3",
  tasks: "M2.5 4.5 4 6l2.5-3M2.5 11 4 12.5 6.5 9.5M9 4.5h4.5M9 11h4.5",
  numbers: "M3 13V8M6.5 13V4M10 13V9.5M13.5 13V6",
  rename: "M3 13l.7-2.9 7-7a1.2 1.2 0 0 1 1.7 0l.5.5a1.2 1.2 0 0 1 0 1.7l-7 7zM9.6 4.2l2.2 2.2",
  fork: "M4.5 3v10M4.5 9.5c0-2.5 6.5-1.5 6.5-5M9.2 5.6 11 3.8l1.8 1.8",
  remove: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5M6.8 7v3.6M9.2 7v3.6",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1.4M8 13.1v1.4M1.5 8h1.4M13.1 8h1.4M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
};

export function Icon({ name }) {
  return html`<svg class="glyph" viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}
