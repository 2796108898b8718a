// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// What speedscope itself makes of our files:
//   node check_speedscope.mjs FILE.speedscope.json|FILE.collapsedstack.txt ...
// The schema of its package validates the JSON ones. Its page, opened from disk in headless Chromium ($CHROMIUM,
// default /usr/bin/chromium), then imports each file and has to show every profile, and the weights as they are.
// Exit 77: no browser, so only the schema was checked.
import { existsSync, readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import assert from "node:assert/strict";
import Ajv from "ajv";

const files = process.argv.slice(2);
if (!files.length) {
	console.error("usage: node check_speedscope.mjs FILE ...");
	process.exit(64);
}
const release = fileURLToPath(new URL("node_modules/speedscope/dist/release/", import.meta.url));
const schema = JSON.parse(readFileSync(join(release, "file-format-schema.json"), "utf8"));
const validate = new Ajv({ strict: false }).compile(schema);

// name -> { unit, total, self: frame -> weight of the samples that end in it }; a frame is name, file and line
const keyOf = f => [f.name, f.file, f.line].join("\0");

function profilesOf(file) {
	const text = readFileSync(file, "utf8");
	const out = new Map();
	const add = (p, leaf, weight) => {
		p.total += weight;
		p.self.set(leaf, (p.self.get(leaf) ?? 0) + weight);
	};
	if (!file.endsWith(".json")) {
		const p = { unit: "", total: 0, self: new Map() };
		for (const line of text.trimEnd().split("\n")) {
			const [, stack, weight] = /^(.*) (\d+)$/.exec(line);
			add(p, stack.split(";").pop(), Number(weight));
		}
		return out.set(basename(file), p);
	}
	const doc = JSON.parse(text);
	assert.ok(validate(doc), `${file}: ${JSON.stringify(validate.errors)}`);
	for (const profile of doc.profiles) {
		const p = { unit: profile.unit, total: 0, self: new Map() };
		assert.equal(profile.samples.length, profile.weights.length);
		profile.samples.forEach((s, i) => add(p, keyOf(doc.shared.frames[s.at(-1)]), profile.weights[i]));
		assert.equal(p.total, profile.endValue, `${file}: ${profile.name}: the weights sum to endValue`);
		assert.ok(!out.has(profile.name));
		out.set(profile.name, p);
	}
	return out;
}

const wanted = new Map(files.map(f => [f, profilesOf(f)]));
console.log(`${files.length} file(s) are as the schema wants them`);

const browserPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
if (!existsSync(browserPath)) {
	console.error(`SKIP: no browser at ${browserPath}, speedscope's own page was not opened`);
	process.exit(77);
}
const { chromium } = await import("playwright-core");
const browser = await chromium.launch({
	executablePath: browserPath,
	args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run",
	       "--allow-file-access-from-files", "--enable-unsafe-swiftshader"],
});

// "8.66 GB (82%)" -> share of the whole
const percentOf = text => parseFloat(/\(([\d.<]+)%\)/.exec(text)[1].replace("<", ""));
const rowsOf = page => page.$$eval("table tr", trs => trs.map(tr => [...tr.cells].map(c => c.textContent)));
const GIB = 2 ** 30;

async function checkTable(page, name, p) {
	await page.keyboard.press("3"); // the sandwich view: a table of frames, total and self
	await page.waitForFunction(() => [...document.querySelectorAll("td")].some(td => /%\)/.test(td.textContent)));
	const [leaf, weight] = [...p.self].sort((a, b) => b[1] - a[1])[0];
	const text = leaf.split("\0")[0].trim();
	const rows = (await rowsOf(page)).filter(r => r.length > 1 && /%\)/.test(r[1]) && r.at(-1).includes(text));
	assert.ok(rows.length, `${name}: the table has a row for ${text}`);
	const share = 100 * weight / p.total;
	assert.ok(rows.some(r => Math.abs(percentOf(r[1]) - share) < 1.01),
		`${name}: ${rows.map(r => r.join(" | "))}, wanted ${share.toFixed(1)} %`);
	await page.keyboard.press("2"); // left heavy: both views draw
	await page.keyboard.press("1");
}

// The list of profiles has the weight of each as speedscope has summed it up.
async function checkTotals(page, profiles) {
	const rows = await rowsOf(page);
	for (const [name, p] of profiles) {
		const row = rows.find(r => r[1] === name);
		assert.ok(row, `a profile ${name}`);
		if (p.unit === "bytes" && p.total >= GIB && p.total < 1000 * GIB)
			assert.equal(row[2], (p.total / GIB).toFixed(2) + " GB", name);
	}
}

for (const [file, profiles] of wanted) {
	const page = await browser.newPage();
	const problems = [];
	page.on("pageerror", e => problems.push(String(e)));
	page.on("console", m => { if (m.type() === "error") problems.push(m.text()); });
	page.on("dialog", d => { problems.push(d.message()); d.dismiss(); });
	await page.goto(pathToFileURL(join(release, "index.html")).href);
	await page.locator("input[type=file]").first().setInputFiles(resolve(file));
	let i = 0;
	for (const [name, p] of profiles) {
		const title = profiles.size > 1 ? `${name} (${i + 1}/${profiles.size})` : name;

		await page.getByText(title, { exact: false }).first().waitFor({ timeout: 10000 });
		if (i === 0 && profiles.size > 1)
			await checkTotals(page, profiles);
		await checkTable(page, name, p);
		await page.keyboard.press("n"); // the next profile
		i++;
	}
	assert.deepEqual(problems, [], file);
	await page.close();
	console.log(`${file}: speedscope shows ${profiles.size} profile(s)`);
}
await browser.close();
