// Fails if README.md or a page under docs/ links to a file that is not there, or names an npm script that is not there.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import process from 'node:process';

process.chdir(join(import.meta.dirname, '..'));
/** @type {{ scripts: Record<string, string> }} */
const manifest = JSON.parse(readFileSync('package.json', 'utf8'));

const complaints = ['README.md', ...pagesIn('docs')].filter((page) => existsSync(page)).flatMap(complaintsAbout);
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exit(1);

/**
 * @param {string} folder
 * @returns {string[]}
 */
function pagesIn(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => join(folder, name));
}

/**
 * @param {string} page
 * @returns {string[]}
 */
function complaintsAbout(page) {
  const text = readFileSync(page, 'utf8');
  const links = [...text.matchAll(/\]\(([^)#\s]+)[^)]*\)/g)].map((match) => match[1] ?? '');
  const scripts = [...text.matchAll(/npm run ([\w:-]+)/g)].map((match) => match[1] ?? '');
  return [
    ...links
      .filter((link) => !/^[a-z]+:/.test(link) && !existsSync(join(dirname(page), link)))
      .map((link) => `${page}: no such file: ${link}`),
    ...scripts.filter((name) => !(name in manifest.scripts)).map((name) => `${page}: no such script: npm run ${name}`),
  ];
}
