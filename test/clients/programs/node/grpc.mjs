// @grpc/grpc-js without generated code: messages are bytes.
import { readFile } from 'node:fs/promises';
import process from 'node:process';
import grpc from '@grpc/grpc-js';
import { authorization, base, column, path } from './connection.mjs';

const bytes = (value) => value;
const method = (name, requestStream, responseStream) => ({
  path: `/keyveil.Test/${name}`,
  requestStream,
  responseStream,
  requestSerialize: bytes,
  requestDeserialize: bytes,
  responseSerialize: bytes,
  responseDeserialize: bytes,
});
const Test = grpc.makeGenericClientConstructor({
  unary: method('Unary', false, false),
  bidi: method('Bidi', true, true),
  hold: method('Hold', true, true),
  upload: method('Upload', true, false),
  hang: method('Hang', false, false),
  fail: method('Fail', false, false),
});
const client = new Test(`${new URL(base).hostname}:443`, grpc.credentials.createSsl());
const metadata = new grpc.Metadata();
metadata.set('authorization', authorization);

function callUnary(name, message, options = {}) {
  return new Promise((resolve, reject) => {
    client[name](message, metadata, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

async function statusOf(promise) {
  try {
    await promise;
    return 'OK';
  } catch (error) {
    return `${grpc.status[error.code]} ${error.details}`;
  }
}

const modes = {
  header: async () => {
    console.log((await callUnary('unary', Buffer.from('hello'))).toString());
    console.log(await statusOf(callUnary('fail', Buffer.from('hello'))));
  },
  upload: async () => {
    const content = await readFile(path);
    const digest = await new Promise((resolve, reject) => {
      const call = client.upload(metadata, (error, answer) => (error ? reject(error) : resolve(answer)));
      for (let at = 0; at < content.length; at += 65_536) call.write(content.subarray(at, at + 65_536));
      call.end();
    });
    console.log(digest.toString());
  },
  // 10,000 messages, each sent when the one before has come back; trailers and status at the end.
  bidi: async () => {
    const call = client.bidi(metadata);
    let count = 0;
    call.write(Buffer.from('message 0'));
    call.on('metadata', (begin) => console.log(`begin ${begin.get('x-begin')}`));
    call.on('data', (message) => {
      if (message.toString() !== `message ${count}`) throw new Error(`not message ${count}: ${message}`);
      count += 1;
      if (count < 10_000) call.write(Buffer.from(`message ${count}`));
      else call.end();
    });
    const status = await new Promise((resolve) => call.on('status', resolve));
    console.log(
      `${count} messages, ${grpc.status[status.code]} ${status.details}, end ${status.metadata.get('x-end')}`,
    );
  },
  cancel: async () => {
    const call = client.hold(metadata);
    call.on('error', () => undefined);
    call.write(Buffer.from('message'));
    call.once('data', () => call.cancel());
    const status = await new Promise((resolve) => call.on('status', resolve));
    console.log(grpc.status[status.code]);
  },
  deadline: async () => {
    const deadline = new Date(Date.now() + 1000);
    console.log(await statusOf(callUnary('hang', Buffer.from('hello'), { deadline })));
  },
};
await modes[column]();
client.close();
process.exitCode = 0;
