// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What the parts of the page stand on besides kit.js: what is chosen, and its moments.
"use strict";
const Page = (() => {
	const { $ } = Kit;
	const head = JSON.parse($("head").textContent);

	// What comes before the first phase, imports and making the model, is no part of the first step.
	const begin = (head.phases ?? []).find(p => p[2] !== "other"), first = head.steps?.[0];
	if (begin && first && begin[0] < first[1])
		first[0] = Math.max(first[0], begin[0]);

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
	const { watch, set, settle } = Kit.store(state);

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

	return {
		...Kit, head, state, data: null, views: {}, watch, set, settle, device, moments, timeOf, chooseMoment, chooseTime, chooseWindow, stepAt, show,
	};
})();
