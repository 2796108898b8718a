// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Elements of all pages, and their tooltip. Names come from a traced program: use them only as textContent.
"use strict";
const Dom = (() => {
	const $ = id => document.getElementById(id);

	// Creates an element. props are properties; "aria-x" and similar are attributes; null is skipped.
	function el(tag, props, ...children) {
		const e = document.createElement(tag);
		for (const [k, v] of Object.entries(props ?? {})) {
			if (v === null || v === undefined)
				continue;
			if (k.includes("-") || k === "role" || k === "scope")
				e.setAttribute(k, v);
			else if (k.startsWith("on"))
				e.addEventListener(k.slice(2), v);
			else
				e[k] = v;
		}
		e.append(...children.filter(c => c !== null && c !== undefined && c !== ""));
		return e;
	}

	// Shows a tooltip; the first line is bold.
	function tip(lines, x, y) {
		const box = $("tip");
		box.replaceChildren(...lines.filter(Boolean).map((l, i) => el(i ? "span" : "b", { textContent: l })));
		box.hidden = false;
		const r = box.getBoundingClientRect();
		const top = y + 18 + r.height > innerHeight - 8 ? y - r.height - 10 : y + 18;
		box.style.left = Math.max(8, Math.min(x + 14, innerWidth - r.width - 8)) + "px";
		box.style.top = Math.max(8, top) + "px";
	}
	const hideTip = () => { $("tip").hidden = true; };

	// Fills a box with words and what each means. tag: the element of a word.
	function pairs(box, tag, list) {
		box.replaceChildren(...list.flatMap(([word, meaning]) => [el(tag, { textContent: word }), el("span", { textContent: meaning })]));
	}

	return { $, el, tip, hideTip, pairs };
})();
