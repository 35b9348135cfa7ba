// Elements from template strings: htm bound to preact. Text in a template is always text; there is no way to insert HTML.

import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);
