// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The findings at the top of the page, and the view of growth. Growth is judged by the program that wrote the page.
"use strict";
(() => {
	const { $, head, state, el } = Page;
	const { bytes, percent, seconds } = Words;

	const leaks = () => head.leaks?.devices.find(d => d.device === Page.device().name);

	// ---- findings

	function finding(name, value, detail, use, title, cls = "") {
		return el("li", { className: cls }, el(use ? "button" : "div", { ...(use ? { type: "button", onclick: use } : {}), title },
			el("span", {}, el("span", { className: "quiet", textContent: name + " " }), el("b", { textContent: value })), el("span", { className: "detail", textContent: detail })));
	}

	function peak() {
		const d = Page.device();
		const where = [seconds(d.peak_time ?? 0), d.peak_step !== null && d.peak_step !== undefined && (head.steps ?? []).length && Page.stepWords(d.peak_step), Words.phase(d.peak_phase)];
		return finding("Peak", bytes(d.peak_allocated ?? 0), where.filter(Boolean).join(", "), () => state.ready && Page.chooseMoment(Page.peakMoment()), "Go to the peak");
	}

	// The line, or the holder of memory from before attach, with most memory at the peak.
	let largestOf = null;
	function largest() {
		if (!state.ready)
			return null;
		if (largestOf?.device !== state.device) {
			const live = Page.data.live(state.device, Page.peakMoment()), sums = new Map();
			let most = null;
			Page.data.rows.forEach((r, i) => {
				const key = r.before_attach ? r.holder ?? r.name : r.file && `${r.file}:${r.line}`;
				if (!key || !live.bytes[i])
					return;
				const s = sums.get(key) ?? { row: r, bytes: 0 };
				s.bytes += live.bytes[i];
				sums.set(key, s);
				if (!most || s.bytes > most.bytes)
					most = s;
			});
			largestOf = { device: state.device, most, all: live.allocated };
		}
		const { most, all } = largestOf, r = most?.row;
		if (!r)
			return null;
		const place = Page.placeOf(r);
		return finding(r.before_attach ? "Largest, before attach" : "Largest line", place, `${bytes(most.bytes)}, ${percent(most.bytes, all)} of the peak`,
			() => { Page.chooseMoment(Page.peakMoment()); Page.find(r.before_attach ? [Page.filter.term("name", r.name)] : [Page.filter.line(r)]); }, "Filter to this line");
	}

	// The sentence of the report: its first part is the rate and the line.
	function growth() {
		const g = Page.device().growth;
		if (!g?.text)
			return null;
		const [first, ...rest] = g.text.split(/, (?=held by|it is|confidence)|; /);
		return finding("Growth", first.slice(0, 1).toUpperCase() + first.slice(1), rest.join(", "), () => Page.set({ tab: "growth" }), g.text, g.verdict === "grows" ? "bad" : "");
	}

	function cached() {
		if (!state.ready)
			return null;
		const f = Page.data.figures(state.device, Page.peakMoment());
		if (!f.reserved)
			return null;
		return finding("Cached", percent(f.reserved - f.allocated, f.reserved), `${bytes(f.reserved - f.allocated)} of ${bytes(f.reserved)} at the peak`, () => Page.set({ tab: "segments" }),
			"Memory that the allocator keeps reserved, without a tensor in it");
	}

	function renew() {
		$("findings").replaceChildren(...[peak(), largest(), growth(), cached()].filter(Boolean));
	}

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
	Page.findings = { renew };
})();
