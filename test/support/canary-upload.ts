// A long upload that stops before its end, so that it lies in the spool.
import type { Evidence } from './canary.ts';
import type { CanaryScene } from './canary-scene.ts';
import type { TestSession } from './operator.ts';

export interface BegunUpload {
  /** The processes while the upload lay in the spool of one of them. */
  readonly evidence: readonly Evidence[];
  /** Sends what is missing, and leaves. */
  end(): void;
}

/** Begins an upload; resolves once it lies in the spool. */
export async function beginUpload(scene: CanaryScene, session: TestSession, placeholder: string): Promise<BegunUpload> {
  const tls = await scene.keyveil.tunnel(session, 'echo.test:443');
  const body = Buffer.from(`${placeholder} `.repeat(10_000));
  tls.write(`POST /say/nothing HTTP/1.1\r\nHost: echo.test\r\nContent-Length: ${String(body.length + 1)}\r\n\r\n`);
  tls.write(body);
  const holdsSpool = (evidence: readonly Evidence[]): boolean =>
    evidence.some(({ place, bytes }) => place === 'open files' && bytes.includes(placeholder));
  let evidence = scene.collectProcesses();
  while (!holdsSpool(evidence)) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    evidence = scene.collectProcesses();
  }
  return {
    evidence,
    end() {
      tls.end('!');
      tls.destroy();
    },
  };
}
