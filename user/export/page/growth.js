// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The findings at the top of the page, and the view of growth. Growth is judged by the program that wrote the page.
"use strict";
(() => {
	const { $, head, state, el } = Page;

	const leaks = () => head.leaks?.devices.find(d => d.device === Page.device().name);

	// ---- findings

	const deviceOf = f => Math.max(0, head.devices.findIndex(d => d.name === f.device));

	// The first out-of-memory error on the device of a finding, or undefined.
	const firstOom = f => head.ooms.find(o => o.device === f.device);

	// The first out-of-memory error, if a finding is about it: { device, time }, or null.
	function oom() {
		const f = head.diagnosis.findings.find(x => x.code === "out_of_memory"), first = f && firstOom(f);
		return first ? { device: deviceOf(f), time: first.time } : null;
	}

	function use(f) {
		const go = (title, run) => ({ title, run: () => {
			if (!state.ready)
				return;
			if (head.devices.some(d => d.name === f.device))
				Page.chooseDevice(deviceOf(f));
			run();
		} });
		const first = firstOom(f), line = Findings.line(f);
		if (f.code === "out_of_memory" && first)
			return go("Go to that moment", () => Page.chooseTime(first.time));
		if (Findings.grows(f))
			return go("Show what grows", () => Page.set({ tab: "growth" }));
		return line ? go("Filter to this line", () => Page.find([line])) : null;
	}

	const show = () => Findings.show($("findings"), head.diagnosis, use);

	// ---- the view

	let box = null;
	function draw() {
		const d = leaks();
		box?.replaceChildren(d ? Growth.device(d, head.leaks, { summary: Page.device().growth, use: l => Page.find([Page.filter.line(l)]) }) :
			el("p", { className: "none", textContent: "This page has no figures of growth." }));
	}

	function open(where) {
		box = el("div", { className: "prose", tabIndex: 0 });
		where.replaceChildren(box);
		draw();
	}

	Page.views.growth = { title: "Growth", open, renew: changed => { if (changed.has("device")) draw(); }, close: () => { box = null; } };
	Page.findings = { show, oom };
})();
