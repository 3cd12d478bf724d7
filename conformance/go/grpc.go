package main

import (
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"
)

// serveGrpc is grpc-go's own interoperability service, which reports its load with each answer.
func serveGrpc(listener net.Listener) {
	server := grpc.NewServer(orca.CallMetricsServerOption(nil))
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	log.Fatal(server.Serve(listener))
}

// callGrpc calls such a service; a case that does not go well ends the program with what grpc-go says of it.
func callGrpc(address string, not []string) {
	channel, err := grpc.Dial(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	service := testgrpc.NewTestServiceClient(channel)
	of := func(do func(testgrpc.TestServiceClient, ...grpc.CallOption)) func() {
		return func() { do(service) }
	}
	soak := func(afresh bool) func() {
		return func() {
			options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
			interop.DoSoakTest(service, address, options, afresh, 30, 0, 271828, 314159,
				30*time.Second, 0, time.Now().Add(time.Minute))
		}
	}
	for _, it := range []struct {
		name string
		do   func()
	}{
		{"empty_unary", of(interop.DoEmptyUnaryCall)},
		{"large_unary", of(interop.DoLargeUnaryCall)},
		{"client_streaming", of(interop.DoClientStreaming)},
		{"server_streaming", of(interop.DoServerStreaming)},
		{"ping_pong", of(interop.DoPingPong)},
		{"empty_stream", of(interop.DoEmptyStream)},
		{"timeout_on_sleeping_server", of(interop.DoTimeoutOnSleepingServer)},
		{"cancel_after_begin", of(interop.DoCancelAfterBegin)},
		{"cancel_after_first_response", of(interop.DoCancelAfterFirstResponse)},
		{"status_code_and_message", of(interop.DoStatusCodeAndMessage)},
		{"special_status_message", of(interop.DoSpecialStatusMessage)},
		{"custom_metadata", of(interop.DoCustomMetadata)},
		{"unimplemented_method", func() { interop.DoUnimplementedMethod(channel) }},
		{"unimplemented_service", func() {
			interop.DoUnimplementedService(testgrpc.NewUnimplementedServiceClient(channel))
		}},
		{"rpc_soak", soak(false)},
		{"channel_soak", soak(true)},
		{"orca_per_rpc", func() { orcaPerRpc(address) }},
	} {
		if contains(not, it.name) {
			continue
		}
		it.do()
		fmt.Println(it.name)
	}
}

// orcaPerRpc looks at the load that comes with an answer: a binary trailer, which the interop package's own balancer
// reads.
func orcaPerRpc(address string) {
	balancer := `{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`
	channel, err := grpc.Dial(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(balancer))
	if err != nil {
		log.Fatal(err)
	}
	defer channel.Close()
	interop.DoORCAPerRPCTest(testgrpc.NewTestServiceClient(channel))
}
