// Node.js 20's own fetch knows no proxy variables, so there the SDKs are given a dispatcher that does.
import process from 'node:process';

export async function sdkOptions() {
  if (Number(process.versions.node.split('.')[0]) >= 24) return {};
  const { EnvHttpProxyAgent } = await import('undici');
  return { fetchOptions: { dispatcher: new EnvHttpProxyAgent() } };
}
