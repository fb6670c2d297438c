import crawlercommons.urlfrontier.CrawlID;
import crawlercommons.urlfrontier.URLFrontierGrpc;
import crawlercommons.urlfrontier.Urlfrontier.CountUrlParams;
import crawlercommons.urlfrontier.Urlfrontier.GetParams;
import crawlercommons.urlfrontier.Urlfrontier.QueueWithinCrawlParams;
import crawlercommons.urlfrontier.Urlfrontier.Stats;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.stormcrawler.Constants;
import org.apache.stormcrawler.Metadata;
import org.apache.stormcrawler.persistence.Status;
import org.apache.stormcrawler.spout.MemorySpout;
import org.apache.stormcrawler.urlfrontier.Spout;
import org.apache.stormcrawler.urlfrontier.StatusUpdaterBolt;
import org.apache.stormcrawler.util.ConfUtils;

/**
 * Crawls with StormCrawler's own seed spout, frontier spout and status bolt in a local cluster.
 *
 * <p>Only the fetcher is an imitation. It answers at once, names the next page as an outlink, and
 * loses one page of each host the first time.
 *
 * <p>usage: Crawl HOST PORT HOSTS PAGES SECONDS crawler-default.yaml
 */
public final class Crawl {
    static final Map<String, AtomicInteger> EMITTED = new ConcurrentHashMap<>();
    static final Map<String, AtomicInteger> ACKED = new ConcurrentHashMap<>();
    static final int HOLD_S = 15;
    static int wrong = 0;

    static String page(int host, int page, int pages) {
        return "http://host" + host + ".example/" + page % pages;
    }

    static boolean isLost(String url) {
        return url.endsWith("/7");
    }

    static void count(Map<String, AtomicInteger> counts, Object url) {
        counts.computeIfAbsent(url.toString(), u -> new AtomicInteger()).incrementAndGet();
    }

    public static final class CountedSpout extends Spout {
        @Override
        public void ack(Object url) {
            super.ack(url);
            count(ACKED, url);
        }
    }

    public static final class Fetcher extends BaseRichBolt {
        private final int pages;
        private OutputCollector collector;

        Fetcher(int pages) {
            this.pages = pages;
        }

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext task, OutputCollector to) {
            collector = to;
        }

        @Override
        public void execute(Tuple tuple) {
            String url = tuple.getStringByField("url");
            Metadata metadata = (Metadata) tuple.getValueByField("metadata");
            count(EMITTED, url);
            if (isLost(url) && EMITTED.get(url).get() == 1) {
                return;
            }
            int slash = url.lastIndexOf('/');
            String next = url.substring(0, slash + 1)
                    + (Integer.parseInt(url.substring(slash + 1)) + 1) % pages;
            String status = Constants.StatusStreamName;
            collector.emit(status, tuple, new Values(next, new Metadata(), Status.DISCOVERED));
            metadata.setValue("fetch.statusCode", "200");
            collector.emit(status, tuple, new Values(url, metadata, Status.FETCHED));
            collector.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declareStream(
                    Constants.StatusStreamName, new Fields("url", "metadata", "status"));
        }
    }

    static void check(String what, long expected, long got) {
        boolean right = expected == got;
        wrong += right ? 0 : 1;
        String result = what + ": " + got;
        System.out.println(right ? "PASS " + result : "FAIL " + result + ", not " + expected);
    }

    public static void main(String[] args) throws Exception {
        String host = args[0];
        int port = Integer.parseInt(args[1]);
        int hosts = Integer.parseInt(args[2]);
        int pages = Integer.parseInt(args[3]);
        long end = System.currentTimeMillis() + 1000L * Integer.parseInt(args[4]);
        int all = hosts * pages;

        List<String> seeds = new ArrayList<>();
        for (int p = 0; p < pages; p++) {
            for (int h = 0; h < hosts; h++) {
                seeds.add(page(h, p, pages));
            }
        }
        Config conf = new Config();
        ConfUtils.loadConf(args[5], conf);
        conf.registerSerialization(Metadata.class);
        conf.put("urlfrontier.host", host);
        conf.put("urlfrontier.port", port);
        conf.put("fetchInterval.default", -1);
        conf.put("urlfrontier.max.buckets", 100);
        conf.put("urlfrontier.max.urls.per.bucket", 20);
        conf.put("status.updater.use.cache", false);
        conf.setMessageTimeoutSecs(HOLD_S);

        TopologyBuilder topology = new TopologyBuilder();
        topology.setSpout("seeds", new MemorySpout(true, seeds.toArray(new String[0])));
        topology.setSpout("frontier", new CountedSpout());
        topology.setBolt("fetch", new Fetcher(pages), 2).shuffleGrouping("frontier");
        topology.setBolt("status", new StatusUpdaterBolt(), 2)
                .fieldsGrouping("seeds", Constants.StatusStreamName, new Fields("url"))
                .fieldsGrouping("fetch", Constants.StatusStreamName, new Fields("url"));

        long began = System.currentTimeMillis();
        try (LocalCluster cluster = new LocalCluster();
                LocalCluster.LocalTopology run =
                        cluster.submitTopology("crawl", conf, topology.createTopology())) {
            long said = began;
            while (ACKED.size() < all && System.currentTimeMillis() < end) {
                Thread.sleep(100);
                if (System.currentTimeMillis() - said > 10_000) {
                    said = System.currentTimeMillis();
                    System.out.println("acked " + ACKED.size() + " of " + all);
                }
            }
            System.out.println("crawled in " + (System.currentTimeMillis() - began) / 1000 + " s");
            checkAll(host, port, hosts, all);
            System.out.flush();
            Runtime.getRuntime().halt(wrong == 0 ? 0 : 1);
        }
    }

    static void checkAll(String host, int port, int hosts, int all) {
        ManagedChannel channel =
                ManagedChannelBuilder.forAddress(host, port).usePlaintext().build();
        URLFrontierGrpc.URLFrontierBlockingStub frontier = URLFrontierGrpc.newBlockingStub(channel);
        Stats stats = frontier.getStats(
                QueueWithinCrawlParams.newBuilder().setCrawlID(CrawlID.DEFAULT).build());
        long once = EMITTED.entrySet().stream()
                .filter(e -> !isLost(e.getKey()) && e.getValue().get() == 1).count();
        long again = EMITTED.entrySet().stream()
                .filter(e -> isLost(e.getKey()) && e.getValue().get() == 2).count();
        check("pages emitted once", all - hosts, once);
        check("lost pages emitted once more", hosts, again);
        check("pages acked", all, ACKED.size());
        check("acks", all, ACKED.values().stream().mapToInt(AtomicInteger::get).sum());
        check("queues", hosts, stats.getNumberOfQueues());
        check("pages completed", all, stats.getCountsMap().getOrDefault("completed", -1L));
        check("active pages", 0, stats.getSize());
        check("pages in process", 0, stats.getInProcess());
        check("pages counted", all, frontier.countURLs(
                CountUrlParams.newBuilder().setCrawlID(CrawlID.DEFAULT).build()).getValue());
        GetParams more = GetParams.newBuilder().setMaxQueues(10).setMaxUrlsPerQueue(10)
                .setCrawlID(CrawlID.DEFAULT).build();
        check("a further GetURLs has pages", 0, frontier.getURLs(more).hasNext() ? 1 : 0);
        channel.shutdownNow();
    }
}
