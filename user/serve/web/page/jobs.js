// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The list of processes that can be captured, targets without a process, and commands. One of them is selected.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes } = Words;
	let rows = [], list = null;

	const figure = (p, what) => {
		const known = (p.last?.devices ?? []).filter(d => d[what] !== undefined && d.device !== "cpu");
		return known.length ? known.reduce((a, d) => a + d[what], 0) : undefined;
	};
	const keyOf = r => r.process ? "p " + r.process.pid : "t " + r.target.name;
	const fullTitle = r => r.process ? r.process.name || "PID " + r.process.pid : r.target.name;
	// The title omits the folder of the script.
	const titleOf = r => fullTitle(r).replace(/^(\S+) \S*\/(\S+)/, "$1 $2");
	const WHAT = { command: "a command that runs when captured", pattern: "no process matches yet", pid: "the process has ended", all: "no process with PyTorch yet" };
	const captured = p => [...model.traces.values()].some(t => t.pid === p.pid && Page.capture.underWay(t));
	const under = r => r.process ? [r.process.gone && "has ended", captured(r.process) && "being captured", r.process.target, r.process.rank !== undefined && r.process.rank !== null && "rank " + r.process.rank, "PID " + r.process.pid,
		r.process.pod || r.process.container].filter(Boolean).join(" · ") : WHAT[r.target.kind] ?? r.target.kind;

	function collect() {
		const words = $("job-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
		const all = [...model.processes.values()].map(process => ({ process }));
		for (const target of model.targets)
			if (target.kind === "command" || !(target.pids ?? []).length)
				if (target.name)
					all.push({ target });
		for (const r of all) {
			r.key = keyOf(r);
			r.text = (fullTitle(r) + " " + under(r)).toLowerCase();
			r.order = [r.process ? 0 : 1, r.process?.target ?? "", r.process?.rank ?? 1e9, r.process?.pid ?? 0];
		}
		const before = (a, b) => { for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1; return 0; };
		rows = all.filter(r => words.every(w => r.text.includes(w))).sort((a, b) => before(a.order, b.order));
		$("jobs-none").hidden = rows.length > 0;
		$("job-list").hidden = !rows.length;
		// With recordings only, there is nothing to select.
		document.body.classList.toggle("no-jobs", Boolean(model.hello) && !model.targets.length && !all.length);
		$("jobs-none").textContent = words.length && all.length ? "No process matches the filter." : !model.hello ? "Asking the server…"
			: "No process to capture. Start the server with --target NAME=PID, --target NAME=PATTERN, --command NAME=COMMAND or --all.";
		return all;
	}

	function make() {
		return el("div", { role: "row" },
			el("span", { role: "gridcell", className: "j-name" }), el("span", { role: "gridcell", className: "j-size" }),
			el("span", { role: "gridcell", className: "j-what" }, el("b", { className: "warn" }), el("span")), el("span", { role: "gridcell", className: "j-bar" }), el("span", { role: "gridcell", className: "j-spark" }));
	}

	// The growth that the server sees from outside: its rate, and when the device is full.
	function badge(g) {
		if (!g?.bytes_per_minute)
			return "";
		return `+${bytes(Math.round(g.bytes_per_minute))}/min${g.full_s ? `, full in ${Words.seconds(g.full_s)}` : ""}`;
	}

	function spark(cell, g) {
		if (!g || g.values.length < 2) {
			cell.replaceChildren();
			return;
		}
		const most = Math.max(...g.values), least = Math.min(...g.values);
		const label = `${g.of === "host" ? "Host memory" : "Device memory"}, lows of the last ${Words.seconds(g.seconds)}: ${bytes(g.values[0])} to ${bytes(g.values.at(-1))}`;
		// At least 5 % of the value from top to bottom, so that noise does not look like growth.
		cell.replaceChildren(Growth.line(g.values, label, Math.max(0, Math.min(least, most * 0.95))));
		cell.classList.toggle("calm", !g.bytes_per_minute);
		cell.title = label;
	}

	// Combines devices if there are too many to show. A sum is unknown if one of its figures is.
	function together(devices) {
		const all = {};
		for (const k of ["allocated", "reserved", "used", "total"])
			if (devices.every(d => d[k] !== undefined))
				all[k] = devices.reduce((a, d) => a + d[k], 0);
		return all;
	}

	function fill(e, i) {
		const r = rows[i], p = r.process, a = p && figure(p, "allocated"), whole = p && figure(p, "total");
		const [name, size, what, bar, curve] = e.children, g = p && !p.gone ? p.last?.growth : null, grows = badge(g);
		e.classList.toggle("chosen", r.key === state.chosen);
		e.classList.toggle("gone", Boolean(p?.gone));
		e.setAttribute("aria-selected", String(r.key === state.chosen));
		name.textContent = titleOf(r);
		name.title = fullTitle(r);
		what.children[0].textContent = grows;
		what.children[1].textContent = (grows ? " · " : "") + under(r);
		spark(curve, g);
		what.title = grows ? `Confidence ${g.confidence}, over ${Words.seconds(g.seconds)}` : p?.pod ?? p?.container ?? r.target?.pattern ?? "";
		size.textContent = a !== undefined ? bytes(a) : p?.last?.rss ? bytes(p.last.rss) : "";
		size.title = a !== undefined ? "allocated" + (whole ? " of " + bytes(whole) : "") : p?.last?.rss ? "resident, on the host" : "";
		const devices = p && !p.gone ? (p.last?.devices ?? []).filter(d => d.device !== "cpu") : [];
		bar.title = devices.length > 1 ? `${devices.length} devices` : "";
		bar.replaceChildren(...(devices.length > 2 ? [together(devices)] : devices).map(Page.meter));
	}

	function use(i) {
		if (rows[i])
			Page.set({ chosen: rows[i].key });
	}

	// Selects the first process if nothing is selected or the selection is gone.
	function choose(all) {
		if (all.some(r => r.key === state.chosen))
			return;
		const first = rows.find(r => r.process) ?? rows[0];
		Page.set({ chosen: first?.key ?? "" });
	}

	let asked = "";
	function chosen() {
		const p = Page.chosenProcess();
		for (const [pid, q] of model.processes)
			if (q.gone && q !== p) {
				model.processes.delete(pid);
				Page.touch("processes");
			}
		const who = p && `${p.pid} ${p.started} ${state.hello}`;
		if (p && who !== asked && !p.gone) {
			asked = who;
			Page.net.history(p.pid);
		}
		list.update(rows.length);
	}

	function start() {
		list = Page.list($("job-list"), { make, fill, use, moved: use });
		list.reset(null);
		const renew = () => {
			const all = collect();
			choose(all);
			list.update(rows.length);
		};
		$("job-filter").addEventListener("input", renew);
		$("job-filter").addEventListener("keydown", e => {
			if (e.key === "ArrowDown") {
				e.preventDefault();
				$("job-list").focus();
			}
		});
		Page.watch(["hello", "targets", "processes"], renew);
		Page.watch(["samples", "traces"], () => list.update(rows.length));
		Page.watch(["chosen"], chosen);
		Page.watch(["hello"], () => { asked = ""; chosen(); });
		renew();
	}

	Page.jobs = { start, titleOf, fullTitle, under, rows: () => rows };
})();
