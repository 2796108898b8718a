// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Shows what `leaks` says about growth, by line and with curves, in the exported page and in the dashboard. Nothing
// is judged here.
"use strict";
const Growth = (() => {
	const { el } = Dom;
	const { bytes, count, seconds } = Words;
	const SVG = "http://www.w3.org/2000/svg";
	const REST = [
		["stopped", "grew, then stopped"], ["released", "grew and shrank again"],
		["unsure", "grew too unevenly to judge"], ["too_short", "grew in too few steps to judge"],
	];

	const unit = d => d.clock === "steps" ? "step" : d.clock === "calls" ? "call" : "second";
	const units = (d, n) => `${count(n)} ${unit(d)}${n === 1 ? "" : "s"}`;
	const span = (d, doc) => d.clock === "time" ? `${seconds(doc.duration - (doc.window_start ?? 0))} (no steps)` : units(d, d.steps);
	const signed = n => (n > 0 ? "+" : "") + bytes(Math.round(n));
	const rate = (l, d) => `${signed(l.bytes_per_step ?? l.bytes_per_second)}/${unit(d)}`;
	const base = file => (file ?? "").slice((file ?? "").lastIndexOf("/") + 1);
	const place = l => l.file || l.function ? base(l.file) + (l.line ? ":" + l.line : "") + (l.function ? ` (${l.function})` : "") :
		l.before_attach ? "memory from " + Words.before() : l.source === "native" ? "a native thread (no Python)" : "memory without a Python line";

	// ---- sentences, in the words of `leaks`

	const ofGraph = h => /^(saved|kept) for /.test(h.name);
	function held(l) {
		const all = l.held_by ?? [];
		if (!all.length)
			return "The holder is not known.";
		const first = all.slice(0, 2).map(h => `${ofGraph(h) ? "autograd’s graph, " : ""}${h.name} (${Words.blocks(h.count)})`).join(" and ");
		const unknown = l.held_unknown > l.bytes / 4 ? ` For ${Math.round(100 * l.held_unknown / l.bytes)} % the holder is not known.` : "";
		return `${ofGraph(all[0]) || /^(global|local) /.test(all[0].name) ? "Held by" : "It is"} ${first}${all.length > 2 ? " and others" : ""}.${unknown}`;
	}

	function stays(l, d) {
		const last = l.survives?.at(-1);
		if (l.kind === "enlarged")
			return "Each of its blocks is replaced by a larger one: a tensor that is enlarged, or inputs that grow.";
		if (!last)
			return `No block could be followed for a whole ${unit(d)}.`;
		const followed = d.clock === "time" ? "" : `, followed for ${units(d, last.age)}`;
		const share = last.share > 0 && last.share < 0.005 ? "<1" : Math.round(last.share * 100);
		const when = d.clock === "steps" || d.clock === "calls" ? `after the last ${unit(d)}` : "at the end";
		return `${share} % of its allocations stay${followed}: ${bytes(l.bytes)} in ${Words.blocks(l.count)} ${when}.`;
	}

	const rises = (l, d) => `${count(l.rises)} of ${count(l.intervals)} ${d.clock === "time" ? "time slices" : d.stride > 1 ? `intervals of ${units(d, d.stride)}` : unit(d) + "s"}`;

	// ---- the curve of a line: its live memory at the end of each step

	function svg(tag, attributes, ...children) {
		const e = document.createElementNS(SVG, tag);
		for (const [k, v] of Object.entries(attributes))
			e.setAttribute(k, v);
		e.append(...children);
		return e;
	}

	// A curve as wide as its box. The highest value is at the top, `low` at the bottom.
	function line(values, label, low = 0) {
		const most = Math.max(low + 1, ...values), last = Math.max(1, values.length - 1);
		const points = values.map((v, i) => `${(1000 * i / last).toFixed(1)},${(98 - 96 * (v - low) / (most - low)).toFixed(2)}`);
		return svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": label, class: "curve" },
			svg("polygon", { points: `0,100 ${points.join(" ")} 1000,100` }), svg("polyline", { points: points.join(" ") }));
	}

	function curve(l, d, doc) {
		const v = l?.live;
		if (!v || v.length < 2)
			return null;
		const stride = d.stride ?? 1, first = d.steps - (v.length - 1) * stride;
		const ends = d.clock === "time" ? [`${seconds(Math.max(0, doc.duration - (v.length - 1) * (d.seconds_per_value ?? 0)))}`, seconds(doc.duration)] :
			[first < 1 ? "start" : `${unit(d)} ${count(first)}`, `${unit(d)} ${count(d.steps)}`];
		const most = Math.max(...v);
		return el("figure", { className: l === d.allocated ? "growth-curve calm" : "growth-curve" },
			el("span", { className: "y", textContent: bytes(most) }), line(v, `Live memory from ${bytes(v[0])} to ${bytes(v.at(-1))}, at most ${bytes(most)}`), el("span", { className: "y low", textContent: "0" }),
			el("figcaption", {}, el("span", { textContent: ends[0] }), el("span", { textContent: `live at the end of each ${d.clock === "time" ? "time slice" : unit(d)}` }), el("span", { textContent: ends[1] })));
	}

	function leak(l, d, doc, use) {
		const code = el("code", { textContent: place(l), title: l.file ? l.file + (l.line ? ":" + l.line : "") : "" });
		return el("li", {},
			el("p", {}, el("b", { textContent: rate(l, d) }), " at ", use && l.file ? el("button", { type: "button", className: "link", title: "Filter to this line", onclick: () => use(l) }, code) : code,
				l.module && l.module !== "*" ? ` in ${l.module}` : "", el("span", { className: "quiet", textContent: ` · confidence ${l.confidence}` })),
			curve(l, d, doc),
			el("p", { className: "quiet", textContent: `Rose in ${rises(l, d)}. ${stays(l, d)} ${held(l)}` }));
	}

	/*
	 * A device of the answer of `leaks --steps --format json`. summary: the device's growth in a report, for the
	 * sentence at the top. use(line): called for a click on a line. longer(): offers a longer capture if there are
	 * too few steps; null: none.
	 */
	function device(d, doc, { summary, use, longer } = {}) {
		const found = d.leaks?.length || d.pool_grows || d.others_grow, rest = REST.map(([verdict, text]) => [(d.no_leaks ?? []).filter(l => l.verdict === verdict).length, text]).filter(([n]) => n);
		const few = d.allocated?.verdict === "too_short";
		const box = el("section", { className: "growth" }, el("h3", {}, d.device, el("span", { className: "quiet", textContent: " · " + span(d, doc) })));
		if (summary?.text)
			box.append(el("p", {}, el("b", { textContent: summary.text.slice(0, 1).toUpperCase() + summary.text.slice(1) + "." })));
		if (!found && few)
			box.append(longer?.() ?? "");
		if (!found && /^no growth/.test(summary?.text ?? ""))
			box.append(el("p", { className: "quiet", textContent: `Live memory at the ends of ${d.clock === "time" ? "time slices" : unit(d) + "s"} stays within ${bytes(d.allocated.range)}.` }));
		if (!found)
			box.append(curve(d.allocated, d, doc) ?? "");
		if (d.leaks?.length)
			box.append(el("ul", { className: "leaks" }, ...d.leaks.map(l => leak(l, d, doc, use))));
		if (d.pool_grows)
			box.append(el("p", { textContent: "The allocator’s reserved memory grows, but the tensors in it do not." }));
		if (d.others_grow)
			box.append(el("p", { textContent: "Memory outside PyTorch’s allocator grows: CUDA’s own, or a library’s." }));
		if (rest.length)
			box.append(el("p", { className: "quiet", textContent: `${rest.map(([n, text]) => `${count(n)} ${n === 1 ? "line" : "lines"} ${text}`).join("; ")}.` }));
		if (d.leaks?.length)
			box.append(el("p", { className: "quiet", textContent: `Memory that is freed less than once in ${span(d, doc)} looks like a leak, too. Record longer to be sure.` }));
		return box;
	}

	return { device, line };
})();
