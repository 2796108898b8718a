// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// The findings of `diagnose` as a list, in the exported page and in the dashboard. Nothing is judged here, and all
// texts about a finding are those of docs/reference/diagnose.md.
"use strict";
const Findings = (() => {
	const { el } = Dom;
	const FIRST = 3; // findings that are shown without a click

	const rank = f => f.code === "out_of_memory" ? "worst" : f.fault ? "bad" : "";

	// use(finding): what a click does, { title, run }; null: nothing.
	function item(f, use) {
		const click = use(f), text = f.share_text ? `: ${f.text} (${f.share_text})` : `: ${f.text}`;
		return el("li", { className: rank(f) }, el(click ? "button" : "div", click ? { type: "button", title: click.title, onclick: click.run } : {},
			el("span", {}, el("b", { textContent: f.title }), text),
			f.remedy ? el("span", { className: "quiet", textContent: `do: ${f.remedy}` }) : ""));
	}

	// The line above a finding, as diagnose prints it; "": none. first: the finding is the first that is no fault.
	function headline(f, first) {
		if (f.code === "tracing")
			return "About the recording:";
		return first ? "Could be saved at the peak:" : "";
	}

	// Faults come before savings.
	function items(findings, from, to, use) {
		const firstOther = findings.findIndex(f => !f.fault);
		return findings.slice(from, to).flatMap((f, i) => {
			const above = headline(f, from + i === firstOther);
			return above ? [el("li", { className: "quiet", textContent: above }), item(f, use)] : [item(f, use)];
		});
	}

	// Fills a list with a diagnosis: an object with the members that docs/reference/diagnose.md names.
	function show(list, { findings, no_fault: noFault, growth_known: known }, use) {
		const rest = findings.length - FIRST, more = el("button", { type: "button", textContent: Words.more(rest, "finding") });
		const last = el("li", { className: "more" }, more);
		more.addEventListener("click", () => {
			const added = items(findings, FIRST, findings.length, use);
			last.replaceWith(...added);
			added.map(li => li.querySelector("button")).find(Boolean)?.focus();
		});
		list.replaceChildren(...(noFault ? [el("li", { className: known ? "good" : "" }, el("div", { textContent: noFault }))] : []),
			...items(findings, 0, FIRST, use), ...(rest > 0 ? [last] : []));
	}

	// The terms of a filter to the line of a finding; null: it has none.
	function line(f) {
		const place = /([^/\s]+:\d+)( \(|$)/.exec(f.where ?? "");
		return place && `line:${place[1]}`;
	}

	// True for a finding about memory that grows, by whichever clock.
	const grows = f => Boolean(f.bytes_per_step || f.bytes_per_second || f.bytes_per_request);

	return { show, line, grows };
})();
