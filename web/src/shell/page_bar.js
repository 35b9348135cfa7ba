// The way back to the side bar from a page that fills a narrow screen.

import { change } from "../app.js";
import { html } from "../html.js";
import { Icon } from "./icons.js";

export function PageBar() {
  return html`<div class="page-bar narrow"><button class="icon" aria-label="Show conversations and files" onClick=${() => change({ pane: "side" })}><${Icon} name="menu" /></button></div>`;
}
