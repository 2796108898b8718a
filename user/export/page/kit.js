// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Shared by the exported page and the dashboard: state changes, colours, canvases and tables.
"use strict";
const Kit = (() => {
	const { el } = Dom;

	// ---- state that views watch. state.theme counts theme changes.

	function store(state) {
		const watchers = [];
		let changed = new Set(), pending = 0;

		// Calls fn(changed keys) before the next frame when one of the state's keys changes.
		function watch(keys, fn) {
			watchers.push([keys, fn]);
		}

		function flush() {
			pending = 0;
			const now = changed;
			changed = new Set();
			for (const [keys, fn] of watchers)
				if (keys.some(k => now.has(k)))
					fn(now);
		}

		// Marks a key as changed whose value changed internally.
		function touch(key) {
			changed.add(key);
			if (!pending)
				pending = requestAnimationFrame(flush);
		}

		function set(patch) {
			for (const [k, v] of Object.entries(patch))
				if (state[k] !== v) {
					state[k] = v;
					touch(k);
				}
		}

		// Updates the page immediately, for the first frame and for tests.
		function settle() {
			if (pending)
				cancelAnimationFrame(pending);
			flush();
		}

		onTheme = () => set({ theme: state.theme + 1 });
		return { watch, touch, set, settle };
	}
	let onTheme = () => {};

	// ---- colours from the style sheet, by theme

	const cache = new Map();
	function colour(name) {
		let c = cache.get(name);
		if (c === undefined) {
			c = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
			cache.set(name, c);
		}
		return c;
	}
	const categoryColour = c => colour("c-" + c) || colour("c-unknown");
	const PHASES = ["forward", "backward", "optimizer", "data", "other"];
	const phaseColour = p => colour("p-" + p) || colour("p-other");
	// Colours for any number of names, in order of appearance.
	const nthColour = i => colour("n-" + i % 8);

	// The theme is set on the root element: the user's earlier choice or the system's theme.
	const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
	let kept = null;
	try {
		kept = localStorage.getItem("memtrace-theme");
	} catch {
		// storage is not available in private windows
	}
	const isDark = () => root.dataset.theme === "dark";
	function setTheme(theme) {
		root.dataset.theme = theme;
		cache.clear();
		onTheme();
	}
	function toggleTheme() {
		kept = isDark() ? "light" : "dark";
		setTheme(kept);
		try {
			localStorage.setItem("memtrace-theme", kept);
		} catch {
			// storage is not available
		}
	}
	root.dataset.theme = kept === "light" || kept === "dark" ? kept : dark.matches ? "dark" : "light";
	dark.addEventListener("change", () => kept || setTheme(dark.matches ? "dark" : "light"));

	// ---- canvas at the screen's resolution

	function fit(canvas, w, h) {
		const r = devicePixelRatio || 1;
		if (canvas.width !== Math.round(w * r) || canvas.height !== Math.round(h * r)) {
			canvas.width = Math.round(w * r);
			canvas.height = Math.round(h * r);
		}
		canvas.style.width = w + "px";
		canvas.style.height = h + "px";
		const c = canvas.getContext("2d");
		c.setTransform(r, 0, 0, r, 0, 0);
		c.clearRect(0, 0, w, h);
		return c;
	}

	// Shortens text from the left, because the end of a path identifies it best.
	function clipText(c, text, width) {
		if (c.measureText(text).width <= width)
			return text;
		let lo = 0, hi = text.length;
		while (lo < hi) {
			const mid = (lo + hi + 1) >> 1;
			if (c.measureText(text.slice(0, mid) + "…").width <= width)
				lo = mid;
			else
				hi = mid - 1;
		}
		return lo < 2 ? "" : text.slice(0, lo) + "…";
	}

	// A table of the data as text, for screen readers; filled when opened.
	function twin(details, fill) {
		const renew = () => {
			if (!details.open)
				return;
			const { columns, rows, note } = fill();
			const table = el("table", {},
				el("thead", {}, el("tr", {}, ...columns.map(c => el("th", { scope: "col", textContent: c })))),
				el("tbody", {}, ...rows.map(r => el("tr", {}, ...r.map(v => el("td", { textContent: v }))))));
			details.lastElementChild.replaceChildren(table, ...(note ? [el("p", { className: "quiet", textContent: note })] : []));
		};
		details.addEventListener("toggle", renew);
		return renew;
	}

	return {
		...Dom, store, colour, categoryColour, phaseColour, nthColour, PHASES, isDark, toggleTheme, fit, clipText, twin,
	};
})();
