// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// Writes the text of a page of export html, in each of its views, into a file: node read_page.mjs PAGE.html ANSWER.json
import { writeFileSync } from "node:fs";
import { close, launch, open, settled } from "./page.mjs";

const [file, answer] = process.argv.slice(2);
const browser = await launch(), page = await open(browser, file), said = {};
const read = async (name, patch) => {
	await page.evaluate(p => Page.set(p), patch);
	await settled(page);
	said[name] = await page.evaluate(() => {
		const titles = [...document.querySelectorAll("[title]")].map(e => e.title);
		return [document.body.innerText, ...titles, JSON.stringify(Page.timeline.names ?? []), Page.table.tsv()].join("\n");
	});
};
for (const tab of await page.evaluate(() => Page.tabsHere))
	await read(tab, { tab });
for (const bands of ["phase", "module1", "", "category"])
	await read("bands " + bands, { bands });
for (const by of ["category", "module", "stack", "line"])
	await read("by " + by, { by });
writeFileSync(answer, JSON.stringify(said));
await close(page);
await browser.close();
