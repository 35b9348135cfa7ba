// Small plots as SVG of our own: a line over time, and bars. Owns scales and labels. A screen reader gets the figures in words.

import { html } from "../html.js";
import { shown } from "../shell/text.js";

const WIDTH = 320;
const HEIGHT = 96;

export function Line({ title, points, format, most = 0 }) {
  const last = points.at(-1);
  const top = Math.max(most, ...points.map(([, y]) => y)) || 1;
  const from = points[0]?.[0] ?? 0;
  const span = Math.max(1, (last?.[0] ?? 1) - from);
  const place = ([x, y]) => [((x - from) / span) * WIDTH, HEIGHT - (y / top) * (HEIGHT - 6) - 2];
  const path = points.map((point, n) => `${n ? "L" : "M"}${place(point).map((each) => each.toFixed(1)).join(" ")}`).join("");
  return html`<figure class="plot">
    <figcaption><span>${title}</span><strong>${last ? format(last[1]) : "—"}</strong></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${last ? `${title}: now ${format(last[1])}, at most ${format(top)}` : `${title}: nothing was measured`}>
      <path class="grid" d=${`M0 ${HEIGHT - 2}H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}`} />
      ${points.length > 1 && html`<path class="area" d=${`${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`} /><path class="line" d=${path} />`}
      ${points.length === 1 && html`<circle class="point" cx=${WIDTH / 2} cy=${place(points[0])[1]} r="3" />`}
    </svg>
    <div class="axis"><span>${last ? new Date(from * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : ""}</span><span>${last ? `at most ${format(top)}` : "nothing was measured"}</span></div>
  </figure>`;
}

export function Bars({ title, bars }) {
  const most = Math.max(...bars.map(([, value]) => value)) || 1;
  return html`<figure class="plot bars"><figcaption><span>${shown(title)}</span></figcaption>
    <ul>${bars.map(([name, value]) => html`<li><span class="name" title=${shown(name)}>${shown(name)}</span><span class="track" aria-hidden="true"><i style=${{ width: `${Math.max(0, (100 * value) / most)}%` }}></i></span><span class="value">${value >= 100 ? Math.round(value).toLocaleString("en-US") : Number(value.toPrecision(3))}</span></li>`)}</ul>
  </figure>`;
}
