// gRPC clients: unary and bidirectional calls, trailers and status, cancellation, deadline.
import { setTimeout as delay } from 'node:timers/promises';
import { API, expect, probeProgram, type Check, type Client } from './client.ts';
import { nodeLibrary, program, PYTHON } from './script-clients.ts';
import type { Command, Scene } from './scene.ts';

type Mode = 'header' | 'upload' | 'bidi' | 'cancel' | 'deadline';

const CANCEL_WAIT_MS = 5000;

/** Resolves once the upstream has seen `count` resets. */
async function cancelled(scene: Scene, count: number): Promise<void> {
  const { grpc } = scene.upstream;
  for (const until = Date.now() + CANCEL_WAIT_MS; grpc.cancelled < count; await delay(10)) {
    expect(Date.now() < until, `The server saw ${grpc.cancelled} cancelled calls, not ${count}.`);
  }
}

function grpcChecks(command: (mode: Mode, scene: Scene) => Command): Client['checks'] {
  const run = async (mode: Mode, scene: Scene): Promise<string> => {
    const { calls } = scene.upstream.grpc;
    calls.length = 0;
    const { stdout } = await scene.run(command(mode, scene));
    expect(calls.length > 0, 'No call arrived.');
    for (const { authorization } of calls) {
      const wanted = `Bearer ${scene.secret('API_KEY')}`;
      expect(authorization === wanted, `The metadata arrived as ${String(authorization)}.`);
    }
    return stdout;
  };
  const expectOutput = (output: string, wanted: string): void => {
    expect(output.includes(wanted), `The client printed ${output}, not ${wanted}.`);
  };
  const header: Check = async (scene) => {
    const output = await run('header', scene);
    expectOutput(output, 'hello\n');
    expectOutput(output, 'FAILED_PRECONDITION as it is');
  };
  const upload: Check = async (scene) => expectOutput(await run('upload', scene), scene.upload.sha256);
  const stream: Check = async (scene) => {
    const output = await run('bidi', scene);
    expectOutput(output, 'begin kept');
    expectOutput(output, '10000 messages, OK as it is, end kept');
    const before = scene.upstream.grpc.cancelled;
    expectOutput(await run('cancel', scene), 'CANCELLED');
    await cancelled(scene, before + 1);
    expectOutput(await run('deadline', scene), 'DEADLINE_EXCEEDED');
    await cancelled(scene, before + 2);
  };
  return { header, upload, stream };
}

const grpcJs = nodeLibrary('grpc', ['@grpc/grpc-js'], process.execPath);

export const grpcNode: Client = {
  name: 'gRPC, @grpc/grpc-js',
  needs: '',
  probe: grpcJs.probe,
  checks: grpcChecks((mode, scene) => grpcJs.run(mode, scene)),
};

export const grpcPython: Client = {
  name: 'gRPC, Python',
  needs: '',
  probe: () => probeProgram(PYTHON, ['-c', 'import grpc; print(grpc.__version__)'], /^(\S+)/),
  checks: grpcChecks((mode, scene) => ({
    file: PYTHON,
    args: [program('python/grpc_client.py'), mode, API, scene.upload.path],
  })),
};
