// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A list of any length that creates elements only for visible rows. Arrow keys move the mark, Enter uses the marked
// row.
"use strict";
(() => {
	const { el } = Page;

	/*
	 * box: scrolls. make(): returns an empty row element. fill(element, i): fills it with row i. use(i): Enter or
	 * click. moved(i): the mark has moved. Returns {update(count), reset(head), mark(i), at()}: update() redraws
	 * the visible rows, reset() recreates all rows.
	 */
	function list(box, { make, fill, use, keys, moved }) {
		const space = el("div", { className: "space", role: "presentation" });
		const pool = [];
		let n = 0, at = 0, head = null;
		// Cached, so that drawing does not force a layout by the browser.
		let rowHeight = 26, height = 0, top = 0, headHeight = 0;
		box.replaceChildren(space);

		function measure() {
			rowHeight = parseFloat(getComputedStyle(box).getPropertyValue("--rh")) || 26;
			height = box.clientHeight;
			top = box.scrollTop;
			headHeight = head?.offsetHeight ?? 0;
		}

		function draw() {
			space.style.height = n * rowHeight + "px";
			const first = Math.max(0, Math.floor((top - headHeight) / rowHeight) - 4);
			const last = Math.min(n, Math.ceil((top + height) / rowHeight) + 4);
			while (pool.length < last - first) {
				const e = make();
				e.classList.add("row");
				pool.push(e);
				space.append(e);
			}
			pool.forEach((e, k) => {
				const i = first + k;
				e.hidden = i >= last;
				if (i >= last)
					return;
				e.style.transform = `translateY(${i * rowHeight}px)`;
				e.dataset.i = i;
				e.id = box.id + "-" + i;
				e.setAttribute("aria-rowindex", i + 2);
				e.classList.toggle("at", i === at && document.activeElement === box);
				fill(e, i);
			});
			if (document.activeElement === box && n)
				box.setAttribute("aria-activedescendant", box.id + "-" + at);
			else
				box.removeAttribute("aria-activedescendant");
		}

		function mark(i) {
			at = Math.max(0, Math.min(n - 1, i));
			measure();
			const y = at * rowHeight, bottom = y + rowHeight + headHeight;
			if (y < top)
				box.scrollTop = y;
			else if (bottom > top + height)
				box.scrollTop = bottom - height;
			top = box.scrollTop;
			draw();
		}

		box.addEventListener("scroll", () => { top = box.scrollTop; draw(); }, { passive: true });
		box.addEventListener("focus", draw);
		box.addEventListener("blur", draw);
		box.addEventListener("click", e => {
			const row = e.target.closest(".row");
			if (row) {
				at = Number(row.dataset.i);
				use(at, e);
				draw();
			}
		});
		box.addEventListener("keydown", e => {
			if (e.ctrlKey || e.metaKey || e.altKey || e.target !== box)
				return;
			const page = Math.max(1, Math.floor(box.clientHeight / rowHeight) - 2);
			const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: n - 1 }[e.key];
			if (to !== undefined) {
				mark(to);
				moved?.(at);
			} else if (e.key === "Enter" || e.key === " ")
				use(at, e);
			else if (!keys?.(e, at))
				return;
			e.preventDefault();
			e.stopPropagation();
		});
		new ResizeObserver(() => { measure(); draw(); }).observe(box);
		return {
			update(count) {
				n = count;
				at = Math.max(0, Math.min(n - 1, at));
				box.setAttribute("aria-rowcount", n + 1);
				draw();
			},
			reset(header) {
				head = header;
				pool.length = 0;
				space.replaceChildren();
				box.replaceChildren(...(head ? [head] : []), space);
				measure();
			},
			mark,
			at: () => at,
		};
	}

	Page.list = list;
})();
