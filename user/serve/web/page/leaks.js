// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Growth in a capture by line of code, with its certainty.
"use strict";
(() => {
	const { $, el, state } = Page;
	const { bytes, count, seconds } = Words;
	const C = Page.columns;
	const LEAST = 8; // steps needed for a judgement
	const REST = [
		["stopped", "grew and then stopped", "grew and then stopped"],
		["released", "grows and is released again", "grow and are released again"],
		["unsure", "grew, too unevenly or too shortly to tell", "grew, too unevenly or too shortly to tell"],
		["too_short", "grew, in too few steps to tell", "grew, in too few steps to tell"],
	];
	let shown = "";

	const unit = d => d.clock === "steps" ? "step" : d.clock === "calls" ? "call" : "second";
	const span = (d, doc) => d.clock === "time" ? `${seconds(doc.duration)} in slices (no steps)` : `${count(d.steps)} ${d.clock === "calls" ? "calls of the model" : "steps"}`;
	const signed = n => (n > 0 ? "+" : "") + bytes(Math.round(n));
	const b = text => el("b", { textContent: text });

	// Uses the words of `leaks`: the holder if a name tells it, otherwise the kind of holder.
	const ofGraph = h => /^(saved|kept) for /.test(h.name);
	function held(l) {
		const all = l.held_by ?? [];
		if (!all.length)
			return "The holder is not known.";
		const first = all.slice(0, 2).map(h => `${ofGraph(h) ? "by autograd’s graph, " : ""}${h.name} (${count(h.count)} ${h.count === 1 ? "block" : "blocks"})`);
		const unknown = l.held_unknown > l.bytes / 4 ? `; of ${Math.round(100 * l.held_unknown / l.bytes)} % it is not known` : "";
		return `${ofGraph(all[0]) || /^(global|local) /.test(all[0].name) ? "Held by" : "It is"} ${first.join(", ")}${all.length > 2 ? " and others" : ""}${unknown}.`;
	}

	function stays(l, d) {
		const last = l.survives?.at(-1);
		if (l.kind === "enlarged")
			return "Its blocks do not stay: each is replaced by a larger one (a tensor that is enlarged, or inputs that grow).";
		if (!last)
			return `Nothing of it was followed for a whole ${unit(d)}.`;
		const followed = d.clock === "time" ? "" : ` (followed for ${count(last.age)} ${unit(d)}${last.age === 1 ? "" : "s"})`;
		return `${Math.round(last.share * 100)} % of what it allocates stays${followed}, ${bytes(l.bytes)} in ${count(l.count)} blocks at the end.`;
	}

	const rises = (l, d) => d.clock === "time" ? `${count(l.rises)} of ${count(l.values)} slices` : d.stride > 1 ? `${count(l.rises)} of ${count(l.values)} stretches of ${count(d.stride)} ${unit(d)}s`
		: `${count(l.rises)} of ${count(l.values)} ${unit(d)}s`;

	function leak(l, d) {
		return el("li", {},
			el("p", {}, b(`${signed(l.bytes_per_step)} a ${unit(d)}`), " at ", el("code", { textContent: C.placeOf(l), title: l.file ? `${l.file}:${l.line}` : "" }),
				l.module && l.module !== "*" ? ` in ${l.module}` : "", "."),
			el("p", { className: "quiet", textContent: `Rose in ${rises(l, d)}. ${stays(l, d)} ${held(l)} Confidence: ${l.confidence}.` }));
	}

	function device(d, doc) {
		const box = el("section", {}, el("h3", {}, d.device, el("span", { className: "quiet", textContent: " · " + span(d, doc) })));
		if (d.leaks?.length)
			box.append(el("ul", { className: "leaks" }, ...d.leaks.map(l => leak(l, d))));
		else if (!d.pool_grows && !d.others_grow)
			box.append(el("p", {}, (d.allocated?.values ?? 0) < LEAST ? `Too short to tell: ${span(d, doc)}. Some 20 tell something, 60 tell it well.`
				: `Nothing grows: ${span(d, doc)}, live at ${d.clock === "time" ? "slice" : unit(d)} ends within ${bytes(d.allocated.range)}.`));
		const rest = REST.map(([verdict, one, many]) => [(d.no_leaks ?? []).filter(l => l.verdict === verdict).length, one, many]).filter(([n]) => n);
		if (rest.length)
			box.append(el("p", { className: "quiet", textContent: `No leak as far as can be told, by line: ${rest.map(([n, one, many]) => `${count(n)} ${n === 1 ? one : many}`).join("; ")}.` }));
		if (d.pool_grows)
			box.append(el("p", { textContent: "What the allocator keeps reserved grows, though blocks do not." }));
		if (d.others_grow)
			box.append(el("p", { textContent: "Memory of others in this process grows: CUDA’s own, or libraries’." }));
		if (d.leaks?.length)
			box.append(el("p", { className: "quiet", textContent: `What is released less often than once in ${span(d, doc)} looks the same.` }));
		return box;
	}

	async function show(id) {
		if (shown === id)
			return;
		shown = id;
		$("leaks").replaceChildren(el("p", { className: "none", textContent: "Looking for what grows…" }));
		try {
			const doc = await Page.net.api(`trace/${encodeURIComponent(id)}/leaks`);
			if (shown !== id)
				return;
			$("leaks").replaceChildren(...doc.devices.map(d => device(d, doc)));
		} catch (err) {
			shown = "";
			$("leaks").replaceChildren(el("p", { className: "none warn", role: "alert", textContent: err.message }));
		}
	}

	Page.leaks = { show };
})();
