// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Looks at all that pages of export html show, whatever their recordings are: nothing goes wrong, nothing of a recording
// becomes more than text, nothing is wider than the screen. node visit_page.mjs PAGE.html ...
import assert from "node:assert/strict";
import { close, launch, open, settled } from "./page.mjs";

const browser = await launch();
// Cells of the table as it is copied that a spreadsheet would take for a formula; and those that the page has marked as text.
const FORMULA = /^[=+\-@\uff1d\uff0b\uff0d\uff20]./, MARKED = /^'[=+\-@\uff1d\uff0b\uff0d\uff20]/;
let marked = 0;
for (const file of process.argv.slice(2)) {
	const page = await open(browser, file);
	const names = await page.evaluate(() => new Set([...document.querySelectorAll("*")].map(e => e.localName)).size);
	const set = async patch => { await page.evaluate(p => Page.set(p), patch); await settled(page); };
	const fits = async what => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${file}: ${what} fits`);
	for (const device of await page.evaluate(() => Page.head.devices.map((d, i) => i))) {
		await page.evaluate(i => { document.getElementById("device").value = i; document.getElementById("device").dispatchEvent(new Event("change")); }, device);
		await settled(page);
		for (const tab of await page.evaluate(() => Page.tabsHere))
			await set({ tab });
		for (const bands of ["phase", "module1", "", "category"])
			await set({ bands });
		for (const by of ["category", "module", "stack", "line"]) {
			await set({ by });
			const [rows, said] = await page.evaluate(() => [document.querySelectorAll("#table .row:not([hidden])").length, document.getElementById("sum").textContent]);
			const live = await page.evaluate(() => Page.figures().all);
			assert.ok(!live || rows > 0, `${file}: rows by ${by}`);
			assert.match(said, /^(Total|Filter:) /);
			const cells = await page.evaluate(() => Page.table.tsv().split(/[\t\n]/));
			assert.deepEqual(cells.filter(c => FORMULA.test(c) && Number.isNaN(Number(c))), [], `${file}: formulas in what is copied`);
			marked += cells.filter(c => MARKED.test(c)).length;
		}
		await page.evaluate(() => Page.chooseWindow(-1, Page.moments().length - 1));
		await settled(page);
		for (const measure of ["kept", "grew", "live", "allocated"])
			await set({ measure });
		await page.evaluate(() => Page.chooseMoment(-1));
		await settled(page);
		await page.evaluate(() => document.querySelectorAll("details").forEach(d => { d.open = true; }));
		await set({ filter: "e -category:parameter" });
		await set({ filter: "" });
	}
	await page.evaluate(() => document.querySelectorAll("details").forEach(d => { d.open = false; }));
	assert.ok(await page.evaluate(() => new Set([...document.querySelectorAll("*")].map(e => e.localName)).size) <= names + 8, "no elements but ours");
	assert.equal(await page.evaluate(() => document.querySelectorAll("img, iframe, object, embed, svg:not(.curve), a").length), 0);
	await fits("1280");
	await page.setViewportSize({ width: 380, height: 800 });
	await settled(page);
	for (const tab of await page.evaluate(() => Page.tabsHere)) {
		await set({ tab });
		await fits(tab + " in 380 px");
	}
	await close(page);
	console.log(`${file}: nothing goes wrong`);
}
assert.ok(marked > 0, "no name that looks like a formula was copied");
await browser.close();
