// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Captures side by side, and the changes from the first to the last.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes, count, percent } = Words;
	const C = Page.columns;
	const BY = ["line", "stack", "module", "layer", "phase", "category", "thread"];
	let grid = null, asked = "", figuresOf = "", doc = null;

	const want = () => ({ by: "line", at: "peak", ...Object.fromEntries(state.route.query ?? []) });
	function change(patch) {
		const w = { ...want(), ...patch }, p = [`traces=${(patch.traces ?? state.route.traces).map(encodeURIComponent).join(",")}`];
		if (w.by !== "line")
			p.push("by=" + w.by);
		if (w.at !== "peak")
			p.push("at=" + w.at);
		Page.stay("#/compare?" + p.join("&"));
		Page.set({ route: Page.readRoute() });
	}

	const nameOf = id => {
		const t = model.traces.get(id);
		return t ? `${Page.traceName(t)}, ${t.begun ? Page.clock(t.begun) : id}` : id;
	};
	const signed = n => (n > 0 ? "+" : "") + bytes(n);

	// ---- figures

	const ratio = x => x === undefined || x === null ? "" : (x >= 1 ? "+" : "−") + percent(Math.abs(x - 1), 1);
	const ROWS = [
		["Peak", c => bytes(c.peak_allocated), c => c.against_first?.peak_allocated],
		["Reserved", c => c.peak_reserved === null || c.peak_reserved === undefined ? "–" : bytes(c.peak_reserved), c => c.against_first?.peak_reserved],
		["Cached at the peak", c => c.fragmentation_at_peak === null || c.fragmentation_at_peak === undefined ? "–" : percent(c.fragmentation_at_peak, 1)],
		["Step", c => c.step_time ? C.time(c.step_time) : "–", c => c.against_first?.step_time],
		["Peak at", c => c.peak_file ? C.placeOf({ file: c.peak_file, line: c.peak_line, function: c.peak_function }) : "–"],
		["In", c => [c.peak_step !== null && c.peak_step !== undefined && Words.step(c.peak_step), Words.phase(c.peak_phase)].filter(Boolean).join(", ") || "–"],
		["Allocated in total", c => bytes(c.total_allocated)],
		["Before the first event", c => c.before_attach === null || c.before_attach === undefined ? "unknown" : bytes(c.before_attach)],
		["Out of memory", c => count(c.ooms ?? 0)],
		["Events", c => `${count(c.events)}, ${count(c.lost)} lost`],
		["Device", c => c.device],
	];

	function figures(all) {
		const n = all.captures.length;
		const head = el("tr", {}, el("th", { scope: "col" }, el("span", { className: "sr", textContent: "Figure" })), ...state.route.traces.slice(0, n).map((id, i) =>
			el("th", { scope: "col" }, el("a", { href: Page.traceAddress(id), textContent: nameOf(id) }), el("small", { textContent: i === 0 ? "the first" : i === n - 1 && n === 2 ? "the second" : "" }))));
		const rows = ROWS.map(([title, text, against]) => el("tr", {}, el("th", { scope: "row", textContent: title }), ...all.captures.map((c, i) => {
			const r = i ? against?.(c) : undefined;
			return el("td", {}, text(c), r !== undefined && r !== null ? el("small", { className: r > 1.005 ? "more" : r < 0.995 ? "less" : "", textContent: " " + ratio(r) }) : null);
		})));
		const notes = all.captures.flatMap((c, i) => (c.warnings ?? []).map(w => el("li", { textContent: `${nameOf(state.route.traces[i])}: ${w}` })));
		$("figures").replaceChildren(el("table", { className: "figures" }, el("thead", {}, head), el("tbody", {}, ...rows)), ...(notes.length ? [el("ul", { className: "notes" }, ...notes)] : []));
	}

	async function loadFigures() {
		const ids = state.route.traces, key = ids.join();
		if (key === figuresOf)
			return;
		figuresOf = key;
		$("figures").replaceChildren(el("p", { className: "none", textContent: "Comparing…" }));
		try {
			const all = await Page.net.api("trace/compare?traces=" + ids.map(encodeURIComponent).join(","));
			if (key === figuresOf)
				figures(all);
		} catch (err) {
			figuresOf = "";
			$("figures").replaceChildren(el("p", { className: "none warn", role: "alert", textContent: err.message }));
		}
	}

	// ---- changes

	const side = r => ({ ...r, ...(r.new ?? r.old ?? {}) });
	const status = r => ({ ...r, status: !r.old_bytes ? "new" : !r.new_bytes ? "gone" : r.change > 0 ? "grew" : "shrank" });
	const STATUS = { grew: "grew", shrank: "shrank", new: "new", gone: "gone", unchanged: "unchanged" };

	function columns(rows) {
		const most = rows.reduce((a, r) => Math.max(a, Math.abs(r.change)), 0);
		const change_ = {
			...C.size(most, most, r => r.change > 0 ? Page.colour("warn") : Page.colour("good"), "Change", r => r.change), width: "100px", tip: r => `${count(r.change)} bytes`,
		};
		const fill = change_.fill;
		change_.fill = (cell, r) => { fill(cell, r); cell.firstChild.textContent = signed(r.change); };
		const was = (id, title, get, narrow) => ({ id, title, width: "88px", right: true, narrow, sort: get, down: true, text: r => get(r) ? bytes(get(r)) : "–", tip: r => count(get(r)) + " bytes" });
		const out = [change_, was("old", "First", r => r.old_bytes, null), was("new", "Second", r => r.new_bytes, "78px"),
			{ id: "status", title: "Status", width: "72px", narrow: null, sort: r => r.status, text: r => STATUS[r.status] ?? r.status }];
		switch (doc.by) {
		case "category": return [...out, { ...C.category, width: "minmax(126px, 1fr)", narrow: "second" }];
		case "phase": return [...out, { ...C.phase, width: "minmax(90px, 1fr)", narrow: "second" }];
		case "thread": return [...out, { id: "thread", title: "Thread", width: "minmax(100px, 1fr)", narrow: "second", text: r => r.thread ?? "" }];
		case "module":
		case "layer": return [...out, C.category, { ...C.module, narrow: "second" }];
		default: return [...out, { ...C.category, narrow: "minmax(0, 1fr)" }, C.phase, C.module, C.place];
		}
	}

	function showDiff() {
		let rows = doc.rows.filter(r => r.change).map(side);
		if (doc.by === "line" || doc.by === "stack")
			rows = C.joined(rows, ["change", "old_bytes", "new_bytes"]).map(status);
		grid.show(columns(rows), rows);
		const parts = Object.entries(doc.summary ?? {}).filter(([k, v]) => v.rows && k !== "unchanged").map(([k, v]) => `${count(v.rows)} ${STATUS[k] ?? k}, ${bytes(v.bytes)}`);
		$("diff-says").textContent = `${signed(doc.change)} on ${doc.device}${parts.length ? ": " + parts.join("; ") : ": nothing changed"}.${doc.adds_up === false ? " The rows do not add up to this change." : ""}`;
		$("diff-says").title = $("diff-says").textContent;
		$("diff-says").classList.toggle("warn", doc.adds_up === false);
	}

	async function loadDiff() {
		const ids = state.route.traces, w = want();
		const p = new URLSearchParams({ old: ids[0], new: ids[ids.length - 1], by: w.by, at: w.at }), question = "trace/diff?" + p;
		$("diff-by").value = w.by;
		$("diff-at").value = w.at;
		if (question === asked)
			return;
		asked = question;
		$("diff-says").classList.remove("warn");
		try {
			const answer = await Page.net.api(question);
			if (question !== asked)
				return;
			doc = answer;
			Words.began([doc.old, doc.new].some(side => side.attached_at === "history") ? "history" : "");
			showDiff();
		} catch (err) {
			asked = "";
			$("diff-says").textContent = err.message;
			$("diff-says").classList.add("warn");
		}
	}

	function route() {
		if (state.route.view !== "diff")
			return;
		document.title = "Comparison · memtrace-bpf";
		$("diff-title").textContent = state.route.traces.length > 2 ? "Comparison: changes from the first to the last" : "Comparison";
		$("swap").hidden = state.route.traces.length !== 2;
		if (state.route.traces.length < 2) {
			$("figures").replaceChildren(el("p", { className: "none", textContent: "Mark two captures in the list to compare them." }));
			return;
		}
		loadFigures();
		loadDiff();
	}

	function swap() {
		change({ traces: [...state.route.traces].reverse() });
	}

	function start() {
		grid = Page.grid($("diff-table"));
		$("diff-by").replaceChildren(...BY.map(b => el("option", { value: b, textContent: b === "category" ? "role" : b })));
		$("diff-by").addEventListener("change", e => change({ by: e.target.value }));
		$("diff-at").addEventListener("change", e => change({ at: e.target.value }));
		$("swap").addEventListener("click", swap);
		Page.watch(["route"], route);
		Page.watch(["theme"], () => doc && state.route.view === "diff" && showDiff());
	}

	Page.compare = { start, swap, get doc() { return doc; } };
})();
