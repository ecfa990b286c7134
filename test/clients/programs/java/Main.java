// HttpClient and HttpsURLConnection: the arguments are which of them, column, base URL, file to upload.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.Authenticator;
import java.net.PasswordAuthentication;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.HttpsURLConnection;

public class Main {
  static final String KEY = System.getenv("API_KEY");

  public static void main(String[] args) throws Exception {
    String login = URI.create(System.getenv("HTTPS_PROXY")).getUserInfo();
    if (args[0].equals("client")) useHttpClient(login, args[1], args[2], Path.of(args[3]));
    else useUrlConnection(login, args[1], args[2], Path.of(args[3]));
  }

  /** HttpClient drops a request's own Authorization once it has an Authenticator, so the login is a header as well. */
  static void useHttpClient(String login, String column, String base, Path path) throws Exception {
    String basic = "Basic " + Base64.getEncoder().encodeToString(login.getBytes());
    HttpClient client = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).build();
    if (column.equals("websocket")) {
      talk(client, basic, base);
      return;
    }
    HttpRequest.Builder request = HttpRequest.newBuilder().header("Proxy-Authorization", basic);
    switch (column) {
      case "header" -> request.uri(URI.create(base + "/echo")).header("Authorization", "Bearer " + KEY);
      case "body" -> request.uri(URI.create(base + "/echo")).header("Content-Type", "application/json")
          .POST(HttpRequest.BodyPublishers.ofString("{\"key\":\"" + KEY + "\"}"));
      case "upload" -> request.uri(URI.create(base + "/upload")).PUT(HttpRequest.BodyPublishers.ofFile(path));
      default -> request.uri(URI.create(base + "/events"));
    }
    client.send(request.build(), BodyHandlers.ofLines()).body().forEach(System.out::println);
  }

  static void talk(HttpClient client, String basic, String base) throws Exception {
    CompletableFuture<String> answer = new CompletableFuture<>();
    WebSocket.Listener listener = new WebSocket.Listener() {
      @Override
      public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean last) {
        answer.complete(text.toString());
        return null;
      }

      @Override
      public void onError(WebSocket socket, Throwable error) {
        answer.completeExceptionally(error);
      }
    };
    URI uri = URI.create(base.replace("https:", "wss:") + "/ws");
    WebSocket socket = client.newWebSocketBuilder()
        .header("Proxy-Authorization", basic).buildAsync(uri, listener).get(60, TimeUnit.SECONDS);
    socket.request(1);
    socket.sendText("key=" + KEY, true);
    System.out.println(answer.get(60, TimeUnit.SECONDS));
    socket.sendClose(WebSocket.NORMAL_CLOSURE, "").get(60, TimeUnit.SECONDS);
    System.exit(0);
  }

  static void useUrlConnection(String login, String column, String base, Path path) throws Exception {
    String[] parts = login.split(":", 2);
    Authenticator.setDefault(new Authenticator() {
      @Override
      protected PasswordAuthentication getPasswordAuthentication() {
        if (getRequestorType() != RequestorType.PROXY) return null;
        return new PasswordAuthentication(parts[0], parts[1].toCharArray());
      }
    });
    String target = column.equals("upload") ? "/upload" : column.equals("stream") ? "/events" : "/echo";
    HttpsURLConnection connection = (HttpsURLConnection) new URL(base + target).openConnection();
    switch (column) {
      case "header" -> connection.setRequestProperty("Authorization", "Bearer " + KEY);
      case "body" -> {
        connection.setDoOutput(true);
        connection.setRequestProperty("Content-Type", "application/json");
        connection.getOutputStream().write(("{\"key\":\"" + KEY + "\"}").getBytes());
      }
      case "upload" -> {
        connection.setDoOutput(true);
        connection.setRequestMethod("PUT");
        connection.setFixedLengthStreamingMode(Files.size(path));
        Files.copy(path, connection.getOutputStream());
      }
      default -> { }
    }
    try (BufferedReader reader = new BufferedReader(new InputStreamReader(connection.getInputStream()))) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) System.out.println(line);
    }
  }
}
