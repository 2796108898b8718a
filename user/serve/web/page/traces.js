// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The list of captures, newest first, for opening, comparing and deleting.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes, count } = Words;
	let rows = [], list = null;

	const COLUMNS = [["mark", ""], ["name", "Process"], ["when", "When"], ["state", "State"], ["peak", "Peak"], ["growth", "Growth"], ["events", "Events"], ["length", "Length"], ["file", "Recording"], ["act", ""]];
	const STATES = { starting: "starting", capturing: "capturing", finishing: "finishing", done: "done", failed: "failed" };

	const peakOf = t => t.summary?.peak_allocated ?? undefined;
	const growthOf = t => t.state === "done" ? t.summary?.growth ?? null : null;
	const growthAddress = t => Page.traceAddress(t.trace_id, "tab=leaks");
	// The sentence of the report, with the device if it is not the one whose peak is shown.
	const growthText = (t, g) => (g.device && g.device !== t.summary.device ? g.device + ": " : "") + g.text;

	// "grows 16.0 KiB/step", "no growth", "no growth (not sure)", or "" if it is not known.
	function growthBadge(g) {
		const rate = g.bytes_per_step ?? g.bytes_per_second;
		if (g.verdict !== "grows" || !(rate > 0))
			return g.verdict === "no_growth" ? "no growth" : /^no growth/.test(g.text) ? "no growth (not sure)" : "";
		return `grows ${bytes(Math.round(rate))}/${g.clock === "calls" ? "call" : g.clock === "time" ? "second" : "step"}`;
	}

	function make() {
		const button = (cls, text, title) => el("button", { type: "button", className: cls, tabIndex: -1, title, "aria-label": title, textContent: text });
		return el("div", { role: "row" }, ...COLUMNS.map(([c]) => {
			const cell = el("span", { role: "gridcell", className: "k-" + c });
			if (c === "mark")
				cell.append(el("i", { className: "box", "aria-hidden": "true" }));
			else if (c === "act")
				cell.append(button("stop", "Stop", "Stop (s)"), button("icon delete", "×", "Delete (Delete)"));
			else if (c === "state")
				cell.append(el("span", { className: "progress" }, el("i")), el("span"));
			else if (c === "growth")
				cell.append(el("a", { className: "grows", tabIndex: -1 }), el("span"));
			return cell;
		}));
	}

	function fill(e, i) {
		const t = rows[i], [mark, name, when, at, peak, growth, events, length, file, act] = e.children, going = Page.capture.underWay(t);
		const marked = state.marked.has(t.trace_id);
		e.setAttribute("aria-selected", String(marked));
		e.classList.toggle("marked", marked);
		mark.firstChild.classList.toggle("on", marked);
		mark.classList.toggle("off", t.state !== "done");
		e.classList.toggle("failed", t.state === "failed");
		e.classList.toggle("done", t.state === "done");
		if (!name.firstChild)
			name.append("", el("small"));
		name.firstChild.data = Page.traceName(t);
		name.lastChild.textContent = [t.process !== Page.traceName(t) && t.process, t.pid && "PID " + t.pid].filter(Boolean).join(" · ");
		name.title = [t.process, t.pid && "PID " + t.pid, t.trace_id].filter(Boolean).join(" · ");
		when.textContent = t.begun ? Page.clock(t.begun) : "";
		when.title = t.begun ? `Start of the recording: ${new Date(t.begun * 1000).toISOString()}` : "";
		at.children[0].hidden = !going;
		at.children[0].firstChild.style.width = Page.capture.part(t) * 100 + "%";
		at.children[1].textContent = going && t.state === "capturing" ? "" : (t.uploaded && t.state === "starting" ? "reading" : STATES[t.state] ?? t.state);
		at.title = going ? Page.capture.words(t) : t.error ?? t.stop_reason ?? "";
		at.classList.toggle("warn", t.state === "failed");
		peak.textContent = peakOf(t) !== undefined ? bytes(peakOf(t)) : t.state === "failed" ? t.error ?? "" : "";
		peak.title = peak.textContent;
		const g = growthOf(t), badge = g ? growthBadge(g) : "", grows = g?.verdict === "grows";
		growth.children[0].textContent = grows ? badge : "";
		growth.children[0].href = growthAddress(t);
		growth.children[0].hidden = !grows || !badge;
		growth.children[1].textContent = grows ? "" : badge;
		growth.title = badge ? growthText(t, g) : "";
		// Use the report's counts if available: a recording given on the command line has no others.
		const n = t.summary?.total_events ?? t.events, lost = t.summary?.lost ?? t.lost, long = t.summary?.tracing_time_ms ? t.summary.tracing_time_ms / 1000 : t.seconds;
		const reduced = Words.detail(t.summary?.detail);
		events.textContent = n !== undefined && n !== null ? count(n) + (lost ? `, ${count(lost)} lost` : "") + (reduced ? ", reduced detail" : "") : "";
		events.title = reduced;
		events.classList.toggle("warn", Boolean(lost || reduced));
		length.textContent = long ? Page.columns.time(long) : "";
		file.textContent = t.bytes ? bytes(t.bytes) : "";
		file.title = t.file ?? "";
		act.children[0].hidden = !going || t.uploaded || t.state === "finishing";
		act.children[1].hidden = going && !t.uploaded;
	}

	function open(t) {
		if (t.state === "done")
			Page.go(Page.traceAddress(t.trace_id));
		else if (t.state === "failed")
			Page.say(t.error ?? "This capture failed.");
		else
			Page.say(`This capture is running: ${Page.capture.words(t)}`);
	}

	function mark(t) {
		if (t.state !== "done")
			return;
		const marked = new Set(state.marked);
		if (!marked.delete(t.trace_id))
			marked.add(t.trace_id);
		Page.set({ marked });
	}

	async function remove(t) {
		if (!await Page.ask(`Delete this capture of ${Page.traceName(t)}${t.begun ? ", " + Page.clock(t.begun) : ""}? Its recording${t.bytes ? ` (${bytes(t.bytes)})` : ""} and exported files are deleted, too.`, "Delete"))
			return false;
		try {
			await Page.net.api("trace/" + encodeURIComponent(t.trace_id), { method: "DELETE" });
			Page.dropTrace(t.trace_id);
			return true;
		} catch (err) {
			Page.say(`Cannot delete the capture: ${err.message}`);
			return false;
		}
	}

	function use(i, e) {
		const t = rows[i];
		if (!t)
			return;
		if (e.target.closest?.(".grows"))
			return;
		if (e.target.closest?.(".stop"))
			Page.capture.stop(t.trace_id);
		else if (e.target.closest?.(".delete"))
			remove(t).then(() => $("trace-list").focus());
		else if (e.key === " " || e.target.closest?.(".k-mark"))
			mark(t);
		else
			open(t);
	}

	function keys(e, i) {
		const t = rows[i];
		if (!t)
			return false;
		if (e.key === "Delete" && !Page.capture.underWay(t))
			remove(t).then(() => $("trace-list").focus());
		else if (e.key === "s" && Page.capture.underWay(t) && !t.uploaded)
			Page.capture.stop(t.trace_id);
		else
			return false;
		return true;
	}

	function renew() {
		rows = [...model.traces.values()].reverse();
		rows.sort((a, b) => (b.begun ?? Infinity) - (a.begun ?? Infinity));
		$("captures-none").hidden = rows.length > 0;
		$("trace-list").hidden = !rows.length;
		$("captures-none").textContent = model.hello ? (model.processes.size || model.targets.length ? "No captures yet. Select a process above and capture it, or drop" : "No captures. Drop") + " a recording or a memory snapshot of PyTorch on this page." : "";
		list.update(rows.length);
		compare();
	}

	function compare() {
		const n = [...state.marked].filter(id => model.traces.has(id)).length, all = model.traces.size;
		$("compare").disabled = n < 2;
		$("compare").textContent = n > 1 ? `Compare ${n}` : "Compare";
		const most = model.hello?.limits?.max_traces;
		$("captures-says").textContent = n ? `${n} marked` : all && most ? `${count(all)} ${all === 1 ? "capture" : "captures"} (limit ${count(most)})` : "";
	}

	function columns() {
		return el("div", { className: "row-head", role: "row" }, ...COLUMNS.map(([c, text]) => el("span", { role: "columnheader", className: "k-" + c, textContent: text, "aria-label": c === "mark" ? "Marked" : c === "act" ? "Actions" : null })));
	}

	// Oldest first: the comparison is from old to new.
	const markedTraces = () => [...rows].reverse().map(t => t.trace_id).filter(id => state.marked.has(id));

	function start() {
		list = Page.list($("trace-list"), { make, fill, use, keys });
		list.reset(columns());
		$("compare").addEventListener("click", () => Page.go("#/compare?traces=" + markedTraces().map(encodeURIComponent).join(",")));
		Page.watch(["traces", "hello", "targets"], renew);
		Page.watch(["marked"], () => { list.update(rows.length); compare(); });
		renew();
	}

	Page.traces = { start, remove, peakOf, growthOf, growthText, growthAddress };
})();
