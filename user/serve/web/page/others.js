// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The GPUs of the selected process: what is free, and which other processes hold memory of them.
"use strict";
(() => {
	const { $, el, state, model } = Page;
	const { bytes, count } = Words;
	const EVERY = 30000, NAMED = 3, WIDTH = 48;
	let doc = null, asked = 0, under = false;

	const short = command => command.length > WIDTH ? command.slice(0, WIDTH - 1) + "…" : command;
	const sum = rows => rows.reduce((a, h) => a + h.bytes, 0);

	function holder(h) {
		const who = [`PID ${h.pid}`, h.user, h.pod ?? h.container].filter(Boolean).join(", ");
		return el("span", { title: [h.command, h.reason].filter(Boolean).join("\n") }, el("b", { textContent: bytes(h.bytes) }), ` ${h.command ? short(h.command) : "(no such process)"} (${who})`, h.left_over ? el("b", { className: "warn", textContent: " probably left over" }) : "");
	}

	function line(d, pid) {
		const others = d.holders.filter(h => h.bytes && h.pid !== pid).sort((a, b) => b.bytes - a.bytes);
		const parts = others.slice(0, NAMED).map(holder);
		if (others.length > NAMED)
			parts.push(el("span", {}, `+ ${count(others.length - NAMED)} more, ${bytes(sum(others.slice(NAMED)))}`));
		if (d.hidden)
			parts.push(el("span", {}, el("b", { textContent: bytes(d.hidden) }), " of processes that the host does not show"));
		const room = d.free === null ? "" : `, ${bytes(d.free)} of ${bytes(d.total)} free`;
		return el("li", {}, el("span", { className: "quiet", title: d.uuid ?? "" }, `GPU ${d.device}${room}. Other processes: ${parts.length ? "" : "none"}`), ...parts);
	}

	function show() {
		const p = Page.chosenProcess();
		const own = p && !p.gone && doc ? doc.devices.filter(d => d.holders.some(h => h.pid === p.pid && h.bytes)) : [];
		$("others").replaceChildren(...own.map(d => line(d, p.pid)));
		$("others").hidden = !own.length;
	}

	// A look at the GPUs takes the server about a second: only while somebody sees it.
	async function look() {
		const p = Page.chosenProcess();
		if (under || document.hidden || state.route.view !== "home" || !p || p.gone || !model.hello?.can_trace || Date.now() - asked < EVERY)
			return;
		under = true;
		asked = Date.now();
		try {
			doc = await Page.net.api("devices");
		} catch {
			doc = null; // the next look may have it
		}
		under = false;
		show();
	}

	function start() {
		Page.watch(["chosen", "processes"], show);
		Page.watch(["chosen", "samples", "route"], look);
		show();
	}

	Page.others = { start };
})();
