// http-mitm-proxy with connections kept alive and a hook that replaces one header.
import process from 'node:process';
import { Proxy } from 'http-mitm-proxy';

const { BENCH_FOLDER, BENCH_PLACEHOLDER, BENCH_VALUE, BENCH_PORT } = process.env;
const proxy = new Proxy();
proxy.onError(() => undefined);
proxy.onRequest((context, next) => {
  const { headers } = context.proxyToServerRequestOptions;
  if (headers.authorization !== undefined) {
    headers.authorization = headers.authorization.replace(BENCH_PLACEHOLDER, BENCH_VALUE);
  }
  next();
});
const port = Number(BENCH_PORT);
proxy.listen({ host: '127.0.0.1', port, sslCaDir: `${BENCH_FOLDER}/http-mitm-proxy`, keepAlive: true }, (error) => {
  if (error) throw error;
  process.stdout.write(`READY ${port}\n`);
});
