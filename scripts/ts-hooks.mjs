// Loader hooks that blank out the types of a .ts file, so that lines and columns stay where they are, and remember the result.
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';

const cacheFolder = new URL('../node_modules/.cache/ts-blank-space/', import.meta.url);
await mkdir(cacheFolder, { recursive: true });

/**
 * @param {string} url
 * @param {import('node:module').LoadHookContext} context
 * @param {(url: string, context: import('node:module').LoadHookContext) => Promise<import('node:module').LoadFnOutput>} nextLoad
 * @returns {Promise<import('node:module').LoadFnOutput>}
 */
export async function load(url, context, nextLoad) {
  if (!url.startsWith('file:') || !new URL(url).pathname.endsWith('.ts')) return nextLoad(url, context);
  const source = await readFile(new URL(new URL(url).pathname, 'file:'), 'utf8');
  return { format: 'module', shortCircuit: true, source: await withoutTypes(source, url) };
}

/**
 * @param {string} source
 * @param {string} url
 * @returns {Promise<string>}
 */
async function withoutTypes(source, url) {
  const cached = new URL(createHash('sha256').update(source).digest('hex') + '.js', cacheFolder);
  try {
    return await readFile(cached, 'utf8');
  } catch {
    const { default: blankSpace } = await import('ts-blank-space');
    const result = blankSpace(source, (node) => {
      throw new SyntaxError(`${url}: types alone can be erased, not: ${node.getText().slice(0, 80)}`);
    });
    // Written aside and renamed, since test files run at the same time.
    const temporary = new URL(`${cached.href}.${process.pid}`);
    await writeFile(temporary, result);
    await rename(temporary, cached);
    return result;
  }
}
