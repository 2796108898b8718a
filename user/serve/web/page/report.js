// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// A capture: its report, layers and phases, as made by the server.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes, count, percent } = Words;
	const C = Page.columns;
	const TABS = [["rows", "Live memory"], ["layers", "Modules"], ["phases", "Phases"], ["leaks", "Growth"]];
	const BY = ["line", "stack", "module", "layer", "phase", "category", "thread", "segment"];
	const TOP = 2000; // requested rows; the server reports the number of further rows
	let grid = null, doc = null, asked = "", abort = null;

	// An address without a moment opens the out-of-memory error, or the peak if there was none.
	function want() {
		const asked = Object.fromEntries(state.route.query ?? []), oom = Page.diagnosis.oomDevice(state.route.id);
		const opens = oom && (asked.device ?? oom) === oom ? { at: "oom", device: oom } : { at: "peak", device: "" };
		return { tab: "rows", by: "line", filter: "", ...opens, ...asked };
	}

	function change(patch) {
		const w = { ...want(), ...patch }, p = new URLSearchParams(), oom = Page.diagnosis.oomDevice(state.route.id);
		for (const [k, v] of Object.entries(w))
			if (v && !(k === "tab" && v === "rows") && !(k === "by" && v === "line") && !(k === "at" && v === "peak" && !oom))
				p.set(k, v);
		Page.stay(Page.traceAddress(state.route.id, String(p)));
		Page.set({ route: Page.readRoute() });
	}

	// ---- requests

	async function load() {
		const w = want(), p = new URLSearchParams({ by: w.by, at: w.at, top: String(TOP) });
		if (w.device)
			p.set("device", w.device);
		if (w.filter)
			p.set("filter", w.filter);
		const question = `trace/${encodeURIComponent(state.route.id)}?${p}`;
		if (question === asked && doc)
			return show();
		asked = question;
		abort?.abort();
		abort = new AbortController();
		$("table").setAttribute("aria-busy", "true");
		try {
			doc = await Page.net.api(question, { signal: abort.signal });
			Words.began(doc.capture.attached_at);
			fault("");
			show();
		} catch (err) {
			if (err.name === "AbortError")
				return;
			asked = "";
			fault(err.message, err.field);
		} finally {
			$("table").removeAttribute("aria-busy");
		}
	}

	// Shows an error below the table. The previous rows stay, because they are still valid.
	function fault(text, field) {
		$("table-says").classList.toggle("warn", Boolean(text));
		if (text)
			$("table-says").textContent = text;
		$("filter").toggleAttribute("aria-invalid", field === "filter");
		$("second").toggleAttribute("aria-invalid", field === "at");
		if (text && !doc) {
			$("trace-says").textContent = text;
			$("trace-says").hidden = false;
		} else {
			$("trace-says").hidden = true;
		}
		// Hide the table if nothing could be read.
		$("trace-tools").hidden = $("trace-rows").hidden = Boolean(text && !doc);
	}

	// ---- heading: process and reliability of the figures

	function command(t) {
		return Array.isArray(t.cmdline) && t.cmdline.length ? t.cmdline.map((w, i) => i ? w : C.base(w)).join(" ") : t.comm ?? "";
	}

	function top() {
		const t = model.traces.get(state.route.id), tgt = doc?.target ?? {}, c = doc?.capture ?? {};
		const name = t ? Page.traceName(t) : "", line = command(tgt);
		$("trace-name").textContent = name || line || state.route.id;
		$("trace-name").title = (tgt.cmdline ?? []).join(" ");
		$("trace-facts").textContent = doc ? [line !== name && line, tgt.pid && `PID ${tgt.pid}`, tgt.torch && `torch ${tgt.torch}`, tgt.python && `Python ${tgt.python}`,
			c.duration !== undefined && C.time(c.duration - (c.window_start ?? 0)), c.window_start !== undefined && `window from ${C.time(c.window_start)} on`, c.steps ? `${count(c.steps)} step${c.steps === 1 ? "" : "s"}` : "", c.start && Page.clock(Date.parse(c.start) / 1000)].filter(Boolean).join(" · ") : "";
		$("trace-facts").title = $("trace-facts").textContent;
		const chips = [];
		if (doc) {
			const d = device();
			chips.push([`${count(c.events ?? 0)} events`, ""], [`${count(c.lost ?? 0)} lost`, c.lost ? "bad" : "good"]);
			if (c.detail?.text)
				chips.push(["reduced detail", "bad", Words.detail(c.detail.text)]);
			if (d && d.drift !== null && d.drift !== undefined)
				chips.push(d.drift ? [`totals differ by ${bytes(d.drift)}`, "bad", "The largest difference between the sum of the blocks and the allocator’s own total, after any event."] :
					["totals verified", "good", "After every event the sum of the blocks equals the allocator’s own total."]);
			if (c.complete === false)
				chips.push(["recording cut short", "bad"]);
			if (doc.host) {
				const [text, title] = Words.host(doc.host);
				chips.push([text, "", title]);
			}
		}
		$("trace-trust").replaceChildren(...chips.map(([text, cls, title]) => el("li", { className: cls, textContent: text, title: title ?? "" })));
		document.title = `${name || line || "capture"} · memtrace-bpf`;
		$("trace-page").href = `api/trace/${encodeURIComponent(state.route.id)}/page`;
	}

	const device = () => doc?.devices.find(d => d.device === doc.device) ?? doc?.devices[0];

	function tile(d) {
		const where = [d.peak_step !== null && d.peak_step !== undefined && Words.step(d.peak_step), d.peak_phase && Words.phase(d.peak_phase)].filter(Boolean).join(", ");
		const b = el("button", { className: "tile" });
		b.append(el("span", { className: "t-name" }, d.device, el("span", { className: "quiet", textContent: [`at ${C.time(d.peak_time ?? 0)}`, where].filter(Boolean).join(" · ") })));
		if (d.reserved || d.peak_reserved)
			b.append(Page.meter({ allocated: d.peak_allocated, reserved: d.peak_reserved }));
		b.append(el("span", { className: "t-figures" }, el("span", {}, el("b", { textContent: bytes(d.peak_allocated) }), " peak"),
			d.peak_reserved ? el("span", {}, el("b", { textContent: bytes(d.peak_reserved) }), " reserved") : null,
			d.before_attach ? el("span", {}, el("b", { textContent: bytes(d.before_attach) }), ` ${Words.before()}`) : null));
		return b;
	}

	// A device that never ran out of memory is shown at its peak instead.
	function choose(name) {
		const has = doc.devices.find(d => d.device === name)?.ooms || want().at !== "oom";
		change(has ? { device: name } : { device: name, at: "peak" });
	}

	function devices() {
		const list = doc?.devices ?? [], names = list.map(d => d.device);
		Page.radios($("trace-devices"), names, doc?.device, choose, name => tile(list[names.indexOf(name)]));
		$("trace-devices").hidden = !names.length;
		const ooms = list.some(d => d.ooms);
		for (const o of $("at").options)
			if (o.value === "oom")
				o.hidden = o.disabled = !ooms && want().at !== "oom";
	}

	// ---- the table

	const ofHost = () => doc.device === "host"; // its memory has no roles, and seldom a phase or a module
	const rowColour = r => r.category && !ofHost() ? Page.categoryColour(r.category) : r.phase && doc.by === "phase" ? Page.phaseColour(r.phase) : Page.colour("accent");
	const sizeText = (id, title, get, width = "90px", narrow = width) => ({ id, title, width, right: true, sort: r => get(r) ?? -1, down: true, narrow, text: r => get(r) === null || get(r) === undefined ? "–" : bytes(get(r)),
		tip: r => get(r) === null || get(r) === undefined ? "" : count(get(r)) + " bytes" });
	const number = (id, title, get, width = "84px", narrow = null) => ({ id, title, width, right: true, sort: r => get(r) ?? -1, down: true, narrow, text: r => get(r) === null || get(r) === undefined ? "–" : count(get(r)) });

	function columnsOf(by, rows, sum) {
		const most = rows.reduce((a, r) => Math.max(a, Math.abs(r.bytes)), 0), size = C.size(most, sum, rowColour), module = { ...C.module, narrow: "second" };
		switch (by) {
		case "phase": return [size, C.share(sum), C.count, { ...C.phase, width: "minmax(90px, 1fr)", narrow: "1fr" }];
		case "category": return [size, C.share(sum), C.count, { ...C.category, width: "minmax(126px, 1fr)" }];
		case "module":
		case "layer": return [size, C.share(sum), C.count, C.category, module];
		case "thread": return [size, C.share(sum), C.count, { id: "thread", title: "Thread", width: "minmax(120px, 1fr)", narrow: "1fr", sort: r => r.thread ?? "", text: r => [r.thread, r.tid && `(${r.tid})`].filter(Boolean).join(" ") || "unknown" }];
		case "segment": return [{ ...size, title: "In blocks" }, sizeText("whole", "Segment", r => r.size), sizeText("free", "Cached", r => r.free), sizeText("stuck", "Cannot be returned", r => r.stuck, "128px", null), C.count,
			{ id: "kind", title: "Kind", width: "80px", narrow: null, sort: r => r.kind ?? "", text: r => r.kind ?? "" },
			{ ...C.place, title: "Allocated by", text: r => r.taken_by ? C.placeOf(r.taken_by) : Words.before(), sort: r => C.placeOf(r.taken_by ?? {}), tip: r => r.taken_by?.file ? C.pathOf(r.taken_by) : "" }];
		default:
			return [size, C.share(sum), C.count, ...(ofHost() ? [rows.some(r => r.phase && r.phase !== "other") && C.phase, rows.some(r => r.module) && C.module].filter(Boolean) : [C.category, C.phase, C.module]), C.place];
		}
	}

	function layerColumns() {
		return [
			sizeText("peak", "Peak", r => r.peak_allocated), sizeText("reserved", "Reserved", r => r.peak_reserved, "90px", null),
			number("allocs", "Allocated", r => r.total_allocations), number("frees", "Freed", r => r.total_deallocations, "76px"),
			{ id: "frag", title: "Cached", width: "66px", right: true, narrow: null, sort: r => r.avg_fragmentation ?? 0, down: true, text: r => percent(r.avg_fragmentation ?? 0, 1) },
			{ id: "ms", title: "Time", width: "80px", right: true, narrow: "72px", sort: r => r.duration_ms ?? 0, down: true, text: r => C.time((r.duration_ms ?? 0) / 1000) },
			number("calls", "Calls", r => r.calls, "64px"),
			{ id: "class", title: "Class", width: "minmax(70px, 1fr)", narrow: null, sort: r => r.layer_class ?? "", text: r => r.layer_class ?? "" },
			{ id: "layer", title: "Module", width: "minmax(140px, 2fr)", narrow: "1fr", sort: r => r.layer_name, text: r => r.layer_name || Words.module({ module_class: r.layer_class || r.root_class }) },
		];
	}

	function phaseColumns() {
		return [
			{ id: "phase", title: "Phase", width: "minmax(90px, 1fr)", narrow: "1fr", sort: r => r.phase, fill(cell, r) {
				if (!cell.firstChild)
					cell.append(el("i", { className: "dot" }), "");
				cell.firstChild.style.background = Page.phaseColour(r.phase);
				cell.lastChild.data = Words.phase(r.phase);
			} },
			sizeText("peak", "Peak", r => r.peak_allocated), sizeText("reserved", "Reserved", r => r.peak_reserved, "90px", null),
			{ id: "delta", title: "Change", width: "96px", right: true, sort: r => r.allocated_delta ?? 0, down: true, text: r => ((r.allocated_delta ?? 0) > 0 ? "+" : "") + bytes(r.allocated_delta ?? 0) },
			{ id: "ms", title: "Time", width: "90px", right: true, narrow: null, sort: r => r.duration_ms ?? 0, down: true, text: r => C.time((r.duration_ms ?? 0) / 1000) },
			number("times", "Times", r => r.count, "70px"),
		];
	}

	function sum() {
		const rows = doc.rows.reduce((a, r) => a + r.bytes, 0), left = doc.rows_left_out ?? {}, out = doc.rows_filtered_out ?? {};
		const all = rows + (left.bytes ?? 0) + (out.bytes ?? 0);
		let said = `Total ${bytes(doc.allocated)} at ${C.time(doc.time)}${doc.reserved ? `, ${bytes(doc.reserved)} reserved, ${percent(doc.reserved - doc.allocated, doc.reserved)} of it cached` : ""}. `;
		if (doc.by === "segment")
			return [said + `${count(doc.rows.length)} segments.`, false];
		if (doc.by === "layer")
			return [said + "Rows include submodules, so they add up to more.", false];
		if (doc.filter && !doc.rows.length)
			return [said + "Nothing matches the filter.", true];
		if (out.rows)
			said += `Filter: ${bytes(all - out.bytes)}, ${percent(all - out.bytes, all)}. Percentages are of the filtered memory. `;
		if (left.rows)
			said += `${Words.more(left.rows)}, ${bytes(left.bytes)}. `;
		if (all !== doc.allocated)
			said += `The rows add up to ${bytes(Math.abs(all - doc.allocated))} ${all < doc.allocated ? "less" : "more"} than the total.`;
		return [said, all !== doc.allocated];
	}

	// One row for each holder of memory from before attach, in place of its tensors. A filter shows the tensors.
	function held(rows) {
		if (!doc.before_attach_holders || doc.filter || doc.rows_left_out)
			return C.joined(rows);
		const before = doc.before_attach_holders.map(h => ({ ...h, before_attach: true, tensors: h.count }));
		return [...C.joined(rows.filter(r => !r.before_attach)), ...before].sort((a, b) => b.bytes - a.bytes);
	}

	function show() {
		const w = want();
		top();
		devices();
		controls();
		if (!doc || w.tab === "leaks")
			return;
		if (w.tab === "layers") {
			const rows = Object.values(doc.layers ?? {}).sort((a, b) => b.peak_allocated - a.peak_allocated);
			grid.show(layerColumns(), rows);
			$("table-says").textContent = rows.length ? `${count(rows.length)} modules. Figures include submodules.` : "No module was called during this capture.";
		} else if (w.tab === "phases") {
			grid.show(phaseColumns(), Object.entries(doc.phases ?? {}).map(([phase, p]) => ({ phase, ...p })));
			$("table-says").textContent = "Change: allocated minus freed memory in this phase.";
		} else {
			let rows = doc.rows.filter(r => r.source !== "filtered");
			if (doc.by === "line" || doc.by === "stack")
				rows = held(rows);
			grid.show(columnsOf(doc.by, rows, doc.rows.reduce((a, r) => a + r.bytes, doc.rows_left_out?.bytes ?? 0)), rows);
			const [text, bad] = sum();
			$("table-says").textContent = text;
			$("table-says").classList.toggle("warn", bad);
		}
	}

	// ---- details of a row

	// A filter to the tensors of a holder: those of its module, or those with its name up to the first pattern.
	function tensorsOf(r) {
		const terms = ["source:census", `category:${r.category}`], name = (r.holder ?? "").split("*")[0];
		if (r.module)
			terms.push(`module:${r.module}`);
		else if (name)
			terms.push(`name:"${name.replaceAll('"', "")}"`);
		return terms.join(" ");
	}

	function detail(r) {
		const lines = [];
		if (r.file)
			lines.push([r.line ? "Line" : "Location", `${C.pathOf(r)}${r.function ? `  (${r.function})` : ""}`]);
		if (r.modules > 1)
			lines.push(["Modules", [...r.of].map(m => m || "(no module)").join(", ")]);
		else if (r.module || r.module_class)
			lines.push(["Module", Words.module(r)]);
		if (r.node_class)
			lines.push(["Backward of", r.node_class]);
		if (r.bytes !== undefined)
			lines.push(["Size", `${count(r.bytes)} bytes${r.count ? ` in ${count(r.count)} ${r.count === 1 ? "block" : "blocks"}${r.count > 1 && r.median ? `, median ${bytes(r.median)}` : ""}` : ""}`]);
		if (r.source === "autograd")
			lines.push(["", "Allocated in backward, for this line of forward."]);
		for (const p of r.pins ?? [])
			lines.push(["Held by", `${C.placeOf(p)}: ${bytes(p.bytes)}`]);
		for (const phase of ["forward", "backward"])
			if (r[phase]?.total_allocations)
				lines.push([phase, `${bytes(r[phase].peak_allocated)} peak, ${count(r[phase].total_allocations)} allocations, ${C.time(r[phase].duration_ms / 1000)}`]);
		const box = $("detail");
		box.replaceChildren(el("dl", {}, ...lines.flatMap(([k, v]) => [el("dt", { textContent: k }), el("dd", { textContent: v })])),
			...(r.tensors > 1 ? [el("button", { type: "button", textContent: `Show its ${count(r.tensors)} tensors`, onclick: () => change({ filter: tensorsOf(r) }) })] : []),
			...(r.stack ? [el("ol", { className: "stack" }, ...r.stack.map(f => el("li", { textContent: f })))] : []),
			el("button", { type: "button", className: "icon", textContent: "×", "aria-label": "Close", title: "Close (Esc)", onclick: () => { box.hidden = true; $("table").focus(); } }));
		box.hidden = false;
	}

	// ---- controls above the table

	function controls() {
		const w = want(), number = isFinite(Number(w.at)) && w.at !== "";
		Page.radios($("tabs"), TABS.map(t => t[0]), w.tab, tab => change({ tab }), tab => el("button", { textContent: TABS.find(t => t[0] === tab)[1], "aria-controls": tab === "leaks" ? "leaks" : "table" }));
		$("by").value = w.by;
		if (!number && $("at").value !== "s")
			$("at").value = w.at;
		if (number) {
			$("at").value = "s";
			if (document.activeElement !== $("second"))
				$("second").value = w.at;
		}
		$("second").hidden = $("at").value !== "s";
		if (document.activeElement !== $("filter"))
			$("filter").value = w.filter;
		for (const e of document.querySelectorAll(".of-table"))
			e.classList.toggle("away", w.tab !== "rows");
		$("find").classList.toggle("away", w.tab !== "rows" || w.by === "segment");
		$("leaks").hidden = w.tab !== "leaks";
		$("table").hidden = w.tab === "leaks";
		$("table-says").hidden = w.tab === "leaks";
	}

	function against() {
		const others = [...model.traces.values()].filter(t => t.state === "done" && t.trace_id !== state.route.id).reverse();
		$("against-box").hidden = !others.length;
		$("against").replaceChildren(el("option", { value: "", textContent: "…" }), ...others.map(t => el("option", { value: t.trace_id, textContent: `${Page.traceName(t)}, ${t.begun ? Page.clock(t.begun) : t.trace_id}` })));
	}

	let was = "";
	function route() {
		if (state.route.view !== "trace")
			return;
		if (was !== state.route.id) {
			was = state.route.id;
			doc = null;
			$("detail").hidden = true;
			fault("");
			$("table-says").textContent = "";
			grid.show([], []);
			top();
			devices();
			against();
		}
		Page.diagnosis.show(state.route.id, () => { if (state.route.view === "trace") route(); });
		controls();
		load();
		if (want().tab === "leaks")
			Page.leaks.show(state.route.id);
	}

	function gone() {
		if (state.route.view !== "trace")
			return;
		against();
		top();
		if (doc)
			$("trace-says").hidden = model.traces.has(state.route.id);
		if (doc && !model.traces.has(state.route.id))
			$("trace-says").textContent = "This capture has been deleted. The page shows what it had read.";
	}

	function start() {
		grid = Page.grid($("table"), { use: detail });
		$("by").replaceChildren(...BY.map(b => el("option", { value: b, textContent: b === "category" ? "role" : b })));
		$("by").addEventListener("change", e => change({ by: e.target.value }));
		$("at").addEventListener("change", e => {
			if (e.target.value !== "s")
				return change({ at: e.target.value });
			$("second").hidden = false;
			$("second").value = doc ? doc.time.toFixed(3) : "0";
			$("second").focus();
			return change({ at: $("second").value });
		});
		$("second").addEventListener("change", e => e.target.value !== "" && change({ at: e.target.value }));
		let wait = 0;
		$("find").addEventListener("submit", e => e.preventDefault());
		$("filter").addEventListener("input", () => {
			clearTimeout(wait);
			wait = setTimeout(() => change({ filter: $("filter").value.trim() }), 350);
		});
		$("against").addEventListener("change", e => e.target.value && Page.go(`#/compare?traces=${[e.target.value, state.route.id].map(encodeURIComponent).join(",")}`));
		$("delete").addEventListener("click", async () => {
			const t = model.traces.get(state.route.id) ?? { trace_id: state.route.id };
			if (await Page.traces.remove(t))
				Page.go("#/");
		});
		Page.watch(["route"], route);
		Page.watch(["traces"], gone);
		Page.watch(["theme"], () => doc && state.route.view === "trace" && show());
	}

	Page.report = { start, change, want, held, TABS, get doc() { return doc; } };
})();
