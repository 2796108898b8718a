// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Shared by the parts of the page, in addition to kit.js: the selection, and moments.
"use strict";
const Page = (() => {
	const { $ } = Kit;
	const head = JSON.parse($("head").textContent);
	Words.began(head.capture?.attached_at);

	// The time before the first phase (imports, making the model) does not belong to the first step.
	const begin = (head.phases ?? []).find(p => p[2] !== "other"), first = head.steps?.[0];
	if (begin && first && begin[0] < first[1])
		first[0] = Math.max(first[0], begin[0]);

	// The recorded time: a window begins later than its capture, from which times count.
	const START = head.capture?.window_start ?? 0, END = Math.max(head.duration || 1, START + 1e-9);

	// Only a recording with scopes can be shown by them.
	if (!head.scopes)
		document.querySelectorAll("option[value=scope]").forEach(o => o.remove());

	// ---- selection: shown by all views

	const state = {
		device: Math.max(0, Math.min(head.devices.length - 1, head.main ?? 0)),
		time: head.at ?? START, // selected time; `moment` is its number once the events are loaded
		moment: -1,
		from: null, // with a window: the moment before its beginning; it ends at `moment`
		measure: "allocated", // figure shown for a window
		by: "line",
		filter: "",
		view: [START, END], // time range of the timeline
		bands: "category",
		tab: "flame",
		brushing: false,
		theme: 0, // counter of theme changes
		ready: false,
	};
	const { watch, set, settle } = Kit.store(state);

	// ---- moments

	const device = () => head.devices[state.device];
	// Whether the device is the process's memory without its tensors: its rows have no role and no module.
	const onHost = () => ["host", "malloc"].includes(device().name);
	const moments = () => Page.data.moments(state.device);
	const timeOf = m => m < 0 ? START : moments()[Math.min(m, moments().length - 1)] ?? 0;
	const clampMoment = m => Math.max(-1, Math.min(moments().length - 1, m));

	function chooseMoment(m) {
		m = clampMoment(m);
		set({ moment: m, from: null, time: timeOf(m) });
	}
	function chooseTime(t) {
		if (state.ready)
			chooseMoment(Page.data.at(state.device, t));
	}
	// Selects the window after moment a up to moment b.
	function chooseWindow(a, b) {
		const from = clampMoment(Math.min(a, b)), to = clampMoment(Math.max(a, b));
		set({ from, moment: to, time: timeOf(to) });
	}

	// The same time on another device.
	function chooseDevice(i) {
		const t = state.time;
		if (i === state.device)
			return;
		set({ device: i, from: null, moment: -1 });
		chooseTime(t);
	}

	// Steps are calls of the model where there is no optimizer.
	const calls = (head.leaks?.devices ?? []).some(d => d.clock === "calls" && !d.after_steps);
	const stepsWords = n => `${Words.count(n)} ${calls ? "call" : "step"}${n === 1 ? "" : "s"}`;
	const stepWords = i => Words.step(i).replace("step", calls ? "call" : "step");

	// The page has the last steps of a long recording.
	const firstStep = head.first_step ?? 0;

	// [number, start, end] of the step at a time, or null.
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
		return steps.length && steps[lo][0] <= t && t <= steps[lo][1] ? [lo + firstStep, steps[lo][0], steps[lo][1]] : null;
	}

	function show(t0, t1) {
		const least = Math.max((END - START) * 1e-7, 1e-7);
		const w = Math.max(least, Math.min(END - START, t1 - t0));
		t0 = Math.max(START, Math.min(END - w, t0));
		if (t0 !== state.view[0] || t0 + w !== state.view[1])
			set({ view: [t0, t0 + w] });
	}

	const showAll = () => show(START, END);

	return {
		...Kit, START, END, head, state, data: null, views: {}, watch, set, settle, device, onHost, moments, timeOf, chooseMoment, chooseTime, chooseDevice, chooseWindow, firstStep, stepAt, stepWords, stepsWords, show, showAll,
	};
})();
