// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What grows in a capture, by line, and how sure that is.
"use strict";
(() => {
	const { $, el, state } = Page;
	const { bytes, count, seconds } = Words;
	const C = Page.columns;
	let shown = "";

	const unit = d => d.clock === "steps" ? "step" : d.clock === "calls" ? "call" : "second";
	const span = (d, doc) => d.clock === "time" ? `${seconds(doc.duration)} in slices (no steps)` : `${count(d.steps)} ${d.clock === "calls" ? "calls of the model" : "steps"}`;
	const signed = n => (n > 0 ? "+" : "") + bytes(Math.round(n));
	const b = text => el("b", { textContent: text });

	function held(l, d) {
		if (l.held_by?.length)
			return "Held by " + l.held_by.slice(0, 3).map(h => typeof h === "string" ? h : h.name ?? h.text ?? "").filter(Boolean).join(", ") + ".";
		return "";
	}

	function leak(l, d) {
		const stays = l.survives?.length ? Math.round(l.survives[l.survives.length - 1].share * 100) : null;
		return el("li", {},
			el("p", {}, b(`${signed(l.bytes_per_step)} a ${unit(d)}`), " at ", el("code", { textContent: C.placeOf(l), title: l.file ? `${l.file}:${l.line}` : "" }),
				l.module && l.module !== "*" ? ` in ${l.module}` : "", "."),
			el("p", { className: "quiet", textContent: [`Rose in ${count(l.rises)} of ${count(l.values)} ${unit(d)}s.`, stays !== null ? `${stays} % of what it allocates stays.` : "", `${bytes(l.bytes)} in ${count(l.count)} blocks at the end.`,
				held(l, d), `Confidence: ${l.confidence}.`].filter(Boolean).join(" ") }));
	}

	function device(d, doc) {
		const box = el("section", {}, el("h3", {}, d.device, el("span", { className: "quiet", textContent: " · " + span(d, doc) })));
		if (d.leaks?.length)
			box.append(el("ul", { className: "leaks" }, ...d.leaks.map(l => leak(l, d))));
		else
			box.append(el("p", {}, d.allocated ? `Nothing grows: what is live at the ends of ${unit(d)}s stays within ${bytes(d.allocated.range)}.` : "Nothing can be said: too little was captured."));
		const calm = (d.no_leaks ?? []).filter(l => l.verdict === "released").length;
		if (calm)
			box.append(el("p", { className: "quiet", textContent: `${count(calm)} ${calm === 1 ? "line grows and is" : "lines grow and are"} released again.` }));
		if (d.pool_grows)
			box.append(el("p", { textContent: "What the allocator keeps reserved grows, though blocks do not." }));
		if (d.others_grow)
			box.append(el("p", { textContent: "Memory of others in this process grows: CUDA’s own, or libraries’." }));
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
			$("leaks").replaceChildren(...doc.devices.map(d => device(d, doc)),
				el("p", { className: "quiet", textContent: "What is released less often than once in the time that was captured looks like a leak here." }));
		} catch (err) {
			shown = "";
			$("leaks").replaceChildren(el("p", { className: "none warn", role: "alert", textContent: err.message }));
		}
	}

	Page.leaks = { show };
})();
