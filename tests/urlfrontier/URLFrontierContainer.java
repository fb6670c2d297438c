package org.apache.stormcrawler.urlfrontier;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Stands for StormCrawler's container of URLFrontier's service. It is a coordinator in a fresh
 * folder, and keeps its port when it stops and starts again. The property `politely` names the
 * program.
 */
public class URLFrontierContainer implements AutoCloseable {
    private final Path folder;
    private final int http = freePort();
    private final int port = freePort();
    private Process process;

    public URLFrontierContainer(String image) {
        try {
            folder = Files.createTempDirectory("frontier");
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static int freePort() {
        try (ServerSocket probe = new ServerSocket(0)) {
            return probe.getLocalPort();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    public void start() {
        try {
            process =
                    new ProcessBuilder(
                                    System.getProperty("politely"),
                                    "serve",
                                    "--bind=127.0.0.1:" + http,
                                    "--grpc=127.0.0.1:" + port,
                                    "--state=" + folder.resolve("state"),
                                    "--frontier=" + folder.resolve("frontier"))
                            .redirectErrorStream(true)
                            .redirectOutput(folder.resolve("log").toFile())
                            .start();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
        while (process.isAlive()) {
            try (Socket socket = new Socket("127.0.0.1", port)) {
                return;
            } catch (IOException e) {
                Thread.onSpinWait();
            }
        }
        throw new IllegalStateException("the coordinator did not start; see " + folder + "/log");
    }

    public void stop() {
        process.destroy();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void close() {
        stop();
    }

    public Address getFrontierConnection() {
        return new Address(port);
    }

    /** Where the coordinator listens. */
    public record Address(int port) {
        public String getHost() {
            return "127.0.0.1";
        }

        public int getPort() {
            return port;
        }
    }
}
