package interop;

import java.io.IOException;
import java.io.PrintStream;
import java.net.URI;
import java.util.Base64;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.AwsCredentialsProvider;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * One KCL worker that polls. It says on stdout, in lines of JSON, what it does: a line
 * per record, and one when a shard is begun, checkpointed, ended or lost. What a worker
 * is told stands in its environment:
 *
 * <ul>
 *   <li>APPLICATION, STREAM, WORKER
 *   <li>KINESIS, DYNAMODB: endpoints
 *   <li>FAILOVER: failoverTimeMillis
 *   <li>LIMIT: records of each shard that are taken; the checkpoint stays at the last of
 *       them. Without it, all are, and the checkpoint follows each batch
 * </ul>
 *
 * SIGTERM is the graceful shutdown. The end of stdin ends the process at once: whoever
 * started it is gone.
 */
public final class Worker {
    private static final PrintStream OUT = System.out;
    private static final String WORKER = System.getenv("WORKER");
    private static final long LIMIT = Long.parseLong(System.getenv().getOrDefault("LIMIT", String.valueOf(Long.MAX_VALUE)));

    public static void main(String[] args) {
        Thread watch = new Thread(Worker::endWithStdin, "stdin");
        watch.setDaemon(true);
        watch.start();
        Scheduler scheduler = scheduler();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                scheduler.startGracefulShutdown().get(30, TimeUnit.SECONDS);
                say("stopped", "", "", 0);
            } catch (Exception e) {
                e.printStackTrace();
            }
        }));
        say("started", "", "", 0);
        scheduler.run();
    }

    private static void endWithStdin() {
        try {
            while (System.in.read() >= 0) {
                // Nobody writes.
            }
        } catch (IOException e) {
            e.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private static Scheduler scheduler() {
        AwsCredentialsProvider keys = StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local"));
        Region region = Region.US_EAST_1;
        // By default this client speaks HTTP/2, which servers on plain sockets do not.
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder().credentialsProvider(keys).region(region)
                .endpointOverride(URI.create(System.getenv("KINESIS")))
                .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1).maxConcurrency(200))
                .build();
        DynamoDbAsyncClient dynamo = DynamoDbAsyncClient.builder().credentialsProvider(keys).region(region)
                .endpointOverride(URI.create(System.getenv("DYNAMODB"))).build();
        CloudWatchAsyncClient unused = CloudWatchAsyncClient.builder().credentialsProvider(keys).region(region)
                .endpointOverride(URI.create("http://127.0.0.1:1")).build();
        String stream = System.getenv("STREAM");
        ConfigsBuilder c = new ConfigsBuilder(stream, System.getenv("APPLICATION"), kinesis, dynamo, unused,
                WORKER + "-" + UUID.randomUUID().toString().substring(0, 8), Processor::new);
        InitialPositionInStreamExtended start =
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        PollingConfig polling = new PollingConfig(stream, kinesis).maxRecords(100).idleTimeBetweenReadsInMillis(200);
        return new Scheduler(
                c.checkpointConfig(),
                c.coordinatorConfig().parentShardPollIntervalMillis(500),
                c.leaseManagementConfig().failoverTimeMillis(Long.parseLong(System.getenv("FAILOVER")))
                        .shardSyncIntervalMillis(1000) // slept after the first leases are made
                        .initialPositionInStream(start),
                c.lifecycleConfig(),
                c.metricsConfig().metricsFactory(new NullMetricsFactory()),
                c.processorConfig(),
                c.retrievalConfig().retrievalSpecificConfig(polling).initialPositionInStreamExtended(start));
    }

    private static void say(String event, String shard, String seq, long sub) {
        OUT.printf("{\"worker\":\"%s\",\"event\":\"%s\",\"shard\":\"%s\",\"seq\":\"%s\",\"sub\":%d}%n", WORKER, event, shard, seq, sub);
        OUT.flush();
    }

    private static final class Processor implements ShardRecordProcessor {
        private String shard;
        private long taken;

        @Override
        public void initialize(InitializationInput in) {
            shard = in.shardId();
            say("begun", shard, in.extendedSequenceNumber().sequenceNumber(), in.extendedSequenceNumber().subSequenceNumber());
        }

        @Override
        public void processRecords(ProcessRecordsInput in) {
            KinesisClientRecord last = null;
            for (KinesisClientRecord r : in.records()) {
                if (taken == LIMIT) {
                    break;
                }
                byte[] data = new byte[r.data().remaining()];
                r.data().get(data);
                OUT.printf("{\"worker\":\"%s\",\"shard\":\"%s\",\"seq\":\"%s\",\"sub\":%d,\"key\":\"%s\",\"data\":\"%s\"}%n",
                        WORKER, shard, r.sequenceNumber(), r.subSequenceNumber(), r.partitionKey(),
                        Base64.getEncoder().encodeToString(data));
                taken++;
                last = r;
            }
            OUT.flush();
            if (last != null) {
                String seq = last.sequenceNumber();
                long sub = last.subSequenceNumber();
                checkpoint(seq, sub, () -> in.checkpointer().checkpoint(seq, sub));
            }
        }

        @Override
        public void leaseLost(LeaseLostInput in) {
            say("lost", shard, "", 0);
        }

        @Override
        public void shardEnded(ShardEndedInput in) {
            checkpoint("SHARD_END", 0, () -> in.checkpointer().checkpoint());
        }

        @Override
        public void shutdownRequested(ShutdownRequestedInput in) {
            // Each batch was checkpointed.
        }

        private interface Write {
            void run() throws ShutdownException, InvalidStateException;
        }

        private void checkpoint(String seq, long sub, Write write) {
            try {
                write.run();
                say("checkpoint", shard, seq, sub);
            } catch (ShutdownException e) {
                say("refused", shard, seq, sub); // the lease is another's by now
            } catch (InvalidStateException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
