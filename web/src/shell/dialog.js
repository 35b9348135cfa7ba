// A dialog over the page: the browser's own, which keeps the focus inside and closes with Esc.

import { useEffect, useRef } from "preact/hooks";
import { html } from "../html.js";

export function Dialog({ label, close, className = "", children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    element.current?.showModal();
    return () => before?.focus();
  }, []);
  const clicked = (event) => event.target === element.current && close();
  return html`<dialog ref=${element} class=${className} aria-label=${label} onClose=${close} onClick=${clicked} onKeyDown=${(event) => event.stopPropagation()}>
    ${children}
    <button class="quiet close" aria-label="Close" onClick=${close}>×</button>
  </dialog>`;
}
