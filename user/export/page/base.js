// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What the parts of the page stand on: what is chosen, who wants to know of it, colours, small helpers.
// Names come from a traced program: they reach the page as textContent only.
"use strict";
const Page = (() => {
	const $ = id => document.getElementById(id);
	const head = JSON.parse($("head").textContent);

	// What comes before the first phase, imports and making the model, is no part of the first step.
	const begin = (head.phases ?? []).find(p => p[2] !== "other"), first = head.steps?.[0];
	if (begin && first && begin[0] < first[1])
		first[0] = Math.max(first[0], begin[0]);

	// Makes an element; props are properties, "aria-x" and the like attributes, null is left out.
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

	// ---- what is chosen: all views show it

	const state = {
		device: Math.max(0, Math.min(head.devices.length - 1, head.main ?? 0)),
		time: head.at ?? 0, // the moment wanted; moment is its number once the events are here
		moment: -1,
		from: null, // with a window: the moment after which it begins; it ends with moment
		measure: "allocated", // of a window
		by: "line",
		filter: "",
		view: [0, head.duration || 1], // what the timeline shows
		bands: "category",
		tab: "flame",
		brushing: false,
		theme: 0, // counts changes of the colours
		ready: false,
	};
	const watchers = [];
	let changed = new Set(), pending = 0;

	// fn(changed keys) before the next picture, when one of keys changes. Keys: those of state.
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

	function set(patch) {
		for (const [k, v] of Object.entries(patch))
			if (state[k] !== v) {
				state[k] = v;
				changed.add(k);
			}
		if (changed.size && !pending)
			pending = requestAnimationFrame(flush);
	}

	// The page at once as the state has it: for the first picture, and for tests.
	function settle() {
		if (pending)
			cancelAnimationFrame(pending);
		flush();
	}

	// ---- moments

	const device = () => head.devices[state.device];
	const moments = () => Page.data.moments(state.device);
	const timeOf = m => m < 0 ? 0 : moments()[Math.min(m, moments().length - 1)] ?? 0;
	const clampMoment = m => Math.max(-1, Math.min(moments().length - 1, m));

	function chooseMoment(m) {
		m = clampMoment(m);
		set({ moment: m, from: null, time: timeOf(m) });
	}
	function chooseTime(t) {
		if (state.ready)
			chooseMoment(Page.data.at(state.device, t));
	}
	// What happened after moment a up to moment b.
	function chooseWindow(a, b) {
		const from = clampMoment(Math.min(a, b)), to = clampMoment(Math.max(a, b));
		set({ from, moment: to, time: timeOf(to) });
	}

	// [number, start, end] of the step around a time, or null.
	function stepAt(t) {
		const steps = head.steps ?? [];
		let lo = 0, hi = steps.length - 1;
		while (lo < hi) {
			const mid = (lo + hi + 1) >> 1;
			if (steps[mid][0] <= t)
				lo = mid;
			else
				hi = mid - 1;
		}
		return steps.length && steps[lo][0] <= t && t <= steps[lo][1] ? [lo, steps[lo][0], steps[lo][1]] : null;
	}

	function show(t0, t1) {
		const end = head.duration || 1, least = Math.max(end * 1e-7, 1e-7);
		let w = Math.max(least, Math.min(end, t1 - t0));
		t0 = Math.max(0, Math.min(end - w, t0));
		if (t0 !== state.view[0] || t0 + w !== state.view[1])
			set({ view: [t0, t0 + w] });
	}

	// ---- colours: the style sheet has them, by theme

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
	// For names of which there may be any number, in the order they come in.
	const nthColour = i => colour("n-" + i % 8);

	// The theme stands on the root element: the one chosen here before, else the system's.
	const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
	let kept = null;
	try {
		kept = localStorage.getItem("memtrace-theme");
	} catch {
		// private windows keep nothing
	}
	const isDark = () => root.dataset.theme === "dark";
	function setTheme(theme) {
		root.dataset.theme = theme;
		cache.clear();
		set({ theme: state.theme + 1 });
	}
	function toggleTheme() {
		kept = isDark() ? "light" : "dark";
		setTheme(kept);
		try {
			localStorage.setItem("memtrace-theme", kept);
		} catch {
			// as above
		}
	}
	root.dataset.theme = kept === "light" || kept === "dark" ? kept : dark.matches ? "dark" : "light";
	dark.addEventListener("change", () => kept || setTheme(dark.matches ? "dark" : "light"));

	// ---- a canvas as sharp as the screen, and what the pointer is on

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

	// lines: the first is bold.
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

	// Words shortened to what has room, from the left: the end of a path says more than its beginning.
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

	// A table of rows of text for those who read and do not look; filled when it is opened.
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
		$, head, state, data: null, views: {}, el, watch, set, settle, device, moments, timeOf, chooseMoment, chooseTime, chooseWindow, stepAt,
		show, colour, categoryColour, phaseColour, nthColour, PHASES, isDark, toggleTheme, fit, tip, hideTip, clipText, twin,
	};
})();
