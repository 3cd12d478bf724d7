// Services that filters ask: the rate-limit service of Envoy's project, and one that checks requests, made with what
// go-control-plane generates from Envoy's own messages.
//
//	services ratelimit FOLDER SOCKET   limits by the files in FOLDER/ratelimit/config, at a unix socket
//	services authz                     prints its port
//
// Each ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	kinds "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	"github.com/envoyproxy/ratelimit/src/settings"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	switch {
	case len(os.Args) == 4 && os.Args[1] == "ratelimit":
		limit(os.Args[2], os.Args[3])
	case len(os.Args) == 2 && os.Args[1] == "authz":
		check()
	default:
		fail(fmt.Errorf("usage: services ratelimit FOLDER SOCKET | authz"))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// The service counts in Redis; this one is of its own process.
func limit(folder, socket string) {
	store, err := miniredis.Run()
	if err != nil {
		fail(err)
	}
	for name, value := range map[string]string{
		"HOST": "127.0.0.1", "PORT": "0", "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": "0", "GRPC_UDS": socket,
		"RUNTIME_ROOT": folder, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"DISABLE_STATS": "true", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": store.Addr(),
	} {
		if err := os.Setenv(name, value); err != nil {
			fail(err)
		}
	}
	service := runner.NewRunner(settings.NewSettings())
	service.Run()
}

type checker struct {
	auth.UnimplementedAuthorizationServer
}

// A request with `x-user: eve` is denied, one with a user is let through with what is known of them, any other is
// asked to say who it is.
func (checker) Check(_ context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	asked := request.GetAttributes().GetRequest().GetHttp()
	switch user := asked.GetHeaders()["x-user"]; user {
	case "":
		return denied(kinds.StatusCode_Unauthorized, "who are you?", field("www-authenticate", "User")), nil
	case "eve":
		return denied(kinds.StatusCode_Forbidden, "not you", nil), nil
	default:
		known, err := structpb.NewStruct(map[string]any{"user": user, "length": len(asked.GetBody())})
		if err != nil {
			return nil, err
		}
		ok := &auth.OkHttpResponse{
			Headers:              []*core.HeaderValueOption{field("x-known-as", strings.ToUpper(user))},
			HeadersToRemove:      []string{"x-user"},
			ResponseHeadersToAdd: []*core.HeaderValueOption{field("x-checked", asked.GetMethod()+" "+asked.GetPath())},
		}
		return &auth.CheckResponse{
			Status:          &status.Status{Code: int32(codes.OK)},
			HttpResponse:    &auth.CheckResponse_OkResponse{OkResponse: ok},
			DynamicMetadata: known,
		}, nil
	}
}

func field(name, value string) *core.HeaderValueOption {
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}}
}

func denied(code kinds.StatusCode, body string, header *core.HeaderValueOption) *auth.CheckResponse {
	response := &auth.DeniedHttpResponse{Status: &kinds.HttpStatus{Code: code}, Body: body}
	if header != nil {
		response.Headers = []*core.HeaderValueOption{header}
	}
	return &auth.CheckResponse{
		Status:       &status.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: response},
	}
}

func check() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	server := grpc.NewServer()
	auth.RegisterAuthorizationServer(server, checker{})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	fail(server.Serve(listener))
}
