// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The page of `report --format html`: the ranks of a job as a grid.
"use strict";
(() => {
	const { $, el } = Kit;
	const doc = JSON.parse($("head").textContent), store = Kit.store({ theme: 0 });
	// Names are of files, which a shell may read otherwise.
	const quoted = name => /^[\w.+-]+$/.test(name) && name[0] !== "-" ? name : "'./" + name.replaceAll("'", "'\\''") + "'";
	const command = r => el("span", {}, "its page: ", el("code", { textContent: `memtrace-bpf export html ${quoted(r.recording + ".mtr")}` }));
	const said = (r, words) => $("ranks-at").replaceChildren(el("b", { textContent: words[0] }), ...words.slice(1).map(w => el("span", { textContent: w })), ...(r.recording ? [command(r)] : []));
	const map = RankMap.make($("ranks-grid"), { open: r => map.mark(map.cells.indexOf(r)), said });

	function paint() {
		map.colour($("colour").value);
		RankMap.legend($("ranks-legend"), map);
	}

	// Why a process has no figures at the moment.
	const UNKNOWN = {
		not_begun: "its recording begins later", ended: "it had ended", not_recorded: "its recording ended earlier",
		no_clock: "its recording has no clock", not_read_again: "its recording cannot be read again",
	};

	// A process on a GPU: its bar, and the figures. They are never added up.
	function line(p, total) {
		const name = p.pid === null ? p.name : `${p.name}, PID ${p.pid}`;
		if (p.state !== "read")
			return el("li", {}, el("b", { textContent: name }), el("span", { textContent: `not known: ${UNKNOWN[p.state]}` }));
		const held = p.driver_used ?? (p.reserved === null ? p.allocated : p.reserved - p.asleep);
		const words = [[p.driver_used, "by the driver"], [p.reserved, "reserved"], [p.allocated, "allocated"], [p.asleep || null, "of the reserved sleeps"]]
			.filter(([n]) => n !== null).map(([n, what]) => `${Words.bytes(n)} ${what}`).join(" · ");
		return el("li", {}, el("b", { textContent: name }), ...(total ? [el("meter", { max: total, value: held, ariaLabel: `${name}: ${Words.bytes(held)} of ${Words.bytes(total)}` })] : []), el("span", { textContent: words }));
	}

	function gpu(g) {
		const moment = g.moment_ns === null ? "" : `, at ${new Date(g.moment_ns / 1e6).toISOString().replace("T", " ").replace("Z", " UTC")}`;
		const parts = [g.name, g.total && Words.bytes(g.total), g.host, g.uuid].filter(Boolean).join(", ");
		return el("div", {}, el("h2", { textContent: `${g.processes.length} processes on one GPU${moment}` }), el("p", { className: "quiet", textContent: parts }),
			el("ul", {}, ...g.processes.map(p => line(p, g.total))),
			el("p", { className: "quiet", textContent: "Nothing is added up: how much of it they share (CUDA IPC) is not recorded." }));
	}

	const [title, facts] = RankMap.heading(doc);
	document.title = title;
	$("ranks-title").textContent = title;
	$("ranks-facts").textContent = facts;
	$("colour").append(...Object.entries(RankMap.WHAT).map(([value, w]) => el("option", { value, textContent: w.title })));
	$("colour").addEventListener("change", paint);
	$("theme").addEventListener("click", Kit.toggleTheme);
	addEventListener("keydown", e => { if (e.key === "t" && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.matches("select")) Kit.toggleTheme(); });
	store.watch(["theme"], paint);
	$("ranks-gpus").append(...(doc.gpus || []).map(gpu));
	$("ranks-gpus").hidden = !doc.gpus;
	map.show(doc);
	RankMap.differ($("ranks-odd"), map, r => map.mark(map.cells.indexOf(r)));
	Kit.twin($("ranks-twin"), () => RankMap.table(map, doc));
	paint();
	document.body.dataset.state = "ready";
})();
