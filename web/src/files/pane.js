// The files beside the talk: tabs, the user's text, and over it what is being written or asked about. Owns which of the two is
// shown. What is proposed never touches the user's text.

import { useEffect, useRef, useState } from "preact/hooks";
import { change, decide, markHunk, marksOf, notify, state, stop } from "../app.js";
import { html } from "../html.js";
import { Icon } from "../shell/icons.js";
import { fileName, plural, shown } from "../shell/text.js";
import { everyFrame, touch, useValue } from "../store.js";
import { activeBuffer, closeFile, currentText, files, isDirty, openFile, revert, save, settleConflict, showFile, typedInto } from "./buffers.js";
import { loadEditor } from "./highlighting.js";
import { LiveText, undecided } from "./live_text.js";

const LIVE_EVERY_MS = 30;
const LIVE_CHARS = 1_500; // 12,000 tokens a second

export function FilePane() {
  useValue(() => files.version);
  const buffer = activeBuffer();
  if (!buffer) return null;
  return html`<section class="files" aria-label="Files">
    <${Tabs} />
    <${Notice} buffer=${buffer} />
    <${Editors} />
  </section>`;
}

function Tabs() {
  return html`<div class="tabs" role="group" aria-label="Open files">
    <button class="icon narrow" aria-label="Back to the talk" onClick=${() => change({ pane: "talk" })}><${Icon} name="back" /></button>
    ${files.open.map((path) => {
      const isActive = path === files.active;
      const dirty = isDirty(files.buffers.get(path));
      return html`<div key=${path} class=${`tab ${isActive ? "active" : ""}`}>
        <button aria-current=${isActive ? "true" : undefined} title=${shown(path)} onClick=${() => showFile(path)}><bdi>${shown(fileName(path))}</bdi>${dirty && html`<i class="dot" title="not saved" aria-label="not saved"></i>`}</button>
        <button class="close" aria-label=${`Close ${fileName(path)}`} onClick=${() => closeFile(path)}>×</button>
      </div>`;
    })}
  </div>`;
}

function Notice({ buffer }) {
  useValue(() => state.talk.version);
  const shownNow = reviewOf(buffer);
  if (buffer.conflict) {
    return html`<div class="strip conflict" role="alert">
      <span>${shown(fileName(buffer.path))} changed on disk, and you have unsaved text. Both are kept.</span>
      <button onClick=${() => settleConflict(buffer.path, "mine")}>Write mine</button>
      <button onClick=${() => settleConflict(buffer.path, "disk")}>Take the disk's</button>
    </div>`;
  }
  if (shownNow?.question) {
    const open = shownNow.ranges.length;
    return html`<div class="strip asked" role="status">
      <span>${plural(open, "change")} to decide</span><span class="spacer"></span>
      <button class="primary" onClick=${() => decide(shownNow.question, "accept")}>Keep all</button>
      <button onClick=${() => decide(shownNow.question, "reject")}>Undo all</button>
    </div>`;
  }
  if (shownNow) return html`<div class="strip live" role="status"><i class="dot"></i><span>writing <code>${shown(shownNow.unit)}</code></span><span class="spacer"></span><button onClick=${stop}>Stop <kbd>esc</kbd></button></div>`;
  if (buffer.isMixed) return html`<div class="strip"><span>This file has several kinds of line ends: it is shown only.</span></div>`;
  if (isDirty(buffer)) {
    return html`<div class="strip"><span class="dim">not saved</span><span class="spacer"></span><button onClick=${() => save()}>Save <kbd>Ctrl S</kbd></button><button class="quiet" onClick=${() => revert()}>Revert</button></div>`;
  }
  return null;
}

/** Two hosts, one above the other: the user's text stays as it is below what is proposed. */
function Editors() {
  const own = useRef(null);
  const review = useRef(null);
  const [isReviewing, setReviewing] = useState(false);
  useEffect(() => {
    let editors = null;
    let isGone = false;
    let shownAt = 0;
    let isMeasuring = false; // the frame after an update is the editor's own
    /** An update of the editor costs some milliseconds: every other frame has one, with as much text as keeps it short. */
    const showLive = (editor, proposal) => {
      const isEarly = isMeasuring || performance.now() - shownAt < LIVE_EVERY_MS;
      isMeasuring = !isEarly;
      const isAll = !isEarly && proposal.live.grow(proposal.newText, LIVE_CHARS);
      if (!isAll) touch();
      if (isEarly) return;
      shownAt = performance.now();
      editor.showLive(proposal);
    };
    /** Mark a hunk, unless its question was closed since it was drawn. */
    const marked = (hunk, mark) => {
      const buffer = activeBuffer();
      const question = buffer && reviewOf(buffer)?.question;
      if (question) markHunk(question, hunk, mark);
    };
    const draw = () => {
      const buffer = activeBuffer();
      if (!editors || !buffer) return;
      const proposal = reviewOf(buffer);
      setReviewing(Boolean(proposal));
      if (proposal?.live) showLive(editors.review, proposal);
      else if (proposal) editors.review.showAsked(proposal);
      editors.own.show(buffer.path, currentText(buffer), buffer.isWritable);
    };
    loadEditor()
      .then(({ FileEditor, ReviewEditor }) => {
        if (isGone) return;
        editors = {
          own: new FileEditor(own.current, { typed: typedInto, save: () => save() }),
          review: new ReviewEditor(review.current, { marked }),
        };
        draw();
      })
      .catch(() => notify("The editor could not be loaded.", { isError: true }));
    const forget = everyFrame(draw);
    return () => {
      isGone = true;
      forget();
      editors?.own.destroy();
      editors?.review.destroy();
    };
  }, []);
  return html`<div class="editors">
    <div class="host" ref=${own} hidden=${isReviewing}></div>
    <div class="host" ref=${review} hidden=${!isReviewing}></div>
  </div>`;
}

// ---- what is proposed for a file --------------------------------------------------------------------------------------

const liveTexts = new WeakMap(); // live entry of the talk → LiveText

/** Return what is being written in this file or asked about it, as the review editor shows it, or null. */
export function reviewOf(buffer) {
  for (const question of state.talk.questions.values()) {
    const file = question.files?.find((each) => each.path === buffer.absolute);
    if (file && !file.is_removed) return { path: buffer.path, question, ...undecided(file.old_text, file.hunks, marksOf(question)) };
  }
  const live = state.talk.live.get(buffer.absolute);
  if (!live) return null;
  if (!liveTexts.has(live)) liveTexts.set(live, new LiveText(currentText(buffer), live.first_line, live.last_line));
  return { path: buffer.path, question: null, ranges: [], unit: live.unit, newText: live.text, live: liveTexts.get(live) };
}

/** Show a file that is being written, where there is room for it. The focus stays where it is. */
export function followLive(event) {
  if (event.type !== "live.diff" && event.type !== "question") return;
  const path = event.type === "live.diff" ? event.path : event.files?.[0]?.path;
  if (!path || !matchMedia("(min-width: 1100px)").matches) return;
  const isNew = event.type === "question" || event.is_first || state.talk.live.get(path)?.text === event.delta;
  if (isNew && activeBuffer()?.absolute !== path) openFile(path, { isQuiet: true });
}
