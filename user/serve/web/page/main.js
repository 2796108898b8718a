// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Starts the dashboard: selects the view and handles keys.
"use strict";
(() => {
	const { $, state } = Page;
	const VIEWS = { home: "home", trace: "trace", diff: "diff", ranks: "ranks" };
	const KEYS = [
		["/", "filter"], ["↑ ↓", "previous or next row; also PageUp, PageDown, Home, End"], ["Enter", "open the capture, or a row’s details"], ["Space", "mark a capture to compare"],
		["c", "capture the selected process"], ["w", "what it holds now"], ["o", "open a recording or snapshot"], ["s", "stop a running capture"], ["Delete", "delete a capture"],
		["1 – 4", "views of a capture"], ["g", "timeline and flame graph"], ["x", "swap the compared captures"], ["n p", "next and previous rank that differs"], ["t", "light or dark"], ["Esc", "close, clear, or back to all captures"], ["?", "show keys, filter fields and colours"],
	];

	const FOCUS = { home: "trace-list", trace: "table", diff: "diff-table", ranks: "ranks-grid" };
	let was = "";

	function view() {
		const now = state.route.view;
		document.body.dataset.view = now;
		for (const [name, id] of Object.entries(VIEWS))
			$(id).hidden = name !== now;
		if (now === "home")
			document.title = "memtrace-bpf";
		// The focused element is hidden now, so focus the new view for its keys.
		if (was && now !== was)
			$(FOCUS[now]).focus({ preventScroll: true });
		was = now;
	}

	const SIGNS = [["Blue", "allocated"], ["Grey", "reserved by PyTorch"], ["Faint", "in use by all processes"], ["Vertical line", "peak"]];

	function keys() {
		Page.pairs($("keys-list"), "kbd", KEYS);
		Page.pairs($("fields-list"), "code", [...Words.FIELDS, ["block:>1M", "blocks larger than that"]]);
		Page.pairs($("signs-list"), "b", SIGNS);
		$("keys").showModal();
	}

	function escape() {
		if (!$("detail").hidden && state.route.view === "trace") {
			$("detail").hidden = true;
			$("table").focus();
		} else if (state.route.view !== "home") {
			Page.go("#/");
		} else if (state.marked.size) {
			Page.set({ marked: new Set() });
		}
	}

	function leaveField(e) {
		const field = e.target;
		if (field.type === "search" && field.value) {
			field.value = "";
			field.dispatchEvent(new Event("input"));
		}
		field.blur();
	}

	const HOME = {
		"/": () => $("job-filter").focus(),
		c: () => { $("length").hidden ? $("go").focus() : $("length").select(); },
		w: () => Page.holds.open(),
		o: () => $("pick").click(),
	};
	const TRACE = {
		"/": () => { Page.report.change({ tab: "rows" }); requestAnimationFrame(() => $("filter").select()); },
		g: () => $("trace-page").click(),
	};
	const DIFF = { x: () => Page.compare.swap() };

	function onKey(e) {
		if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented || document.querySelector("dialog[open]"))
			return;
		if (e.target.matches("input, select, textarea")) {
			if (e.key === "Escape")
				leaveField(e);
			return;
		}
		const here = { home: HOME, trace: TRACE, diff: DIFF, ranks: {} }[state.route.view];
		const tab = state.route.view === "trace" && Page.report.TABS[Number(e.key) - 1];
		if (e.key === "?")
			keys();
		else if (e.key === "t")
			Page.toggleTheme();
		else if (e.key === "Escape")
			escape();
		else if (tab)
			Page.report.change({ tab: tab[0] });
		else if (here[e.key])
			here[e.key]();
		else
			return;
		e.preventDefault();
	}

	function start() {
		state.route = Page.readRoute();
		addEventListener("hashchange", () => Page.set({ route: Page.readRoute() }));
		addEventListener("keydown", onKey);
		$("theme").addEventListener("click", Page.toggleTheme);
		$("help").addEventListener("click", keys);
		Page.watch(["route"], view);
		for (const part of ["jobs", "chart", "capture", "traces", "report", "files", "upload", "compare", "ranks", "holds", "others", "net"])
			Page[part].start();
		Page.touch("route");
		Page.settle();
		document.body.dataset.state = "ready";
	}

	start();
})();
