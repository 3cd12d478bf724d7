//! tonic's own clients over this library, against tonic's own server: greetings and routes, calls of all four shapes.
#![expect(clippy::unwrap_used, reason = "a test's failure is its answer")]

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::service_fn;
use towpath::{Engine, Service};

#[derive(Clone, PartialEq, prost::Message)]
struct Hello {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Point {
    #[prost(int32, tag = "1")]
    latitude: i32,
    #[prost(int32, tag = "2")]
    longitude: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RouteSummary {
    #[prost(int32, tag = "1")]
    point_count: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RouteNote {
    #[prost(message, optional, tag = "1")]
    location: Option<Point>,
    #[prost(string, tag = "2")]
    message: String,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What `tonic-build` makes of the two services.
#[derive(Clone)]
struct Routes;

impl tower::Service<http::Request<tonic::body::Body>> for Routes {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/helloworld.Greeter/SayHello" => {
                    let mut server = tonic::server::Grpc::new(ProstCodec::default());
                    server.unary(service_fn(say_hello), request).await
                }
                "/routeguide.RouteGuide/ListFeatures" => {
                    let mut server = tonic::server::Grpc::new(ProstCodec::default());
                    server.server_streaming(service_fn(list_features), request).await
                }
                "/routeguide.RouteGuide/RecordRoute" => {
                    let mut server = tonic::server::Grpc::new(ProstCodec::default());
                    server.client_streaming(service_fn(record_route), request).await
                }
                "/routeguide.RouteGuide/RouteChat" => {
                    let mut server = tonic::server::Grpc::new(ProstCodec::default());
                    server.streaming(service_fn(route_chat), request).await
                }
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

async fn say_hello(request: Request<Hello>) -> Result<Response<Hello>, Status> {
    match request.get_ref().name.as_str() {
        "unknown" => Err(Status::not_found("50 % of them")),
        "late" => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Err(Status::internal("it was waited for"))
        }
        name => {
            let mut response = Response::new(Hello { name: format!("Hello {name}!") });
            let told = request.metadata().get("x-told").cloned();
            told.map(|told| response.metadata_mut().insert("x-heard", told));
            Ok(response)
        }
    }
}

async fn list_features(request: Request<Point>) -> Result<Response<Answers<Point>>, Status> {
    let count = request.get_ref().latitude;
    let list = (0..count).map(|at| Ok(Point { latitude: at, longitude: -at }));
    let end = (count == 13).then(|| Err(Status::out_of_range("unlucky")));
    Ok(Response::new(Box::pin(tokio_stream::iter(list.chain(end)))))
}

async fn record_route(
    request: Request<Streaming<Point>>,
) -> Result<Response<RouteSummary>, Status> {
    let mut points = request.into_inner();
    let mut point_count = 0;
    while let Some(point) = points.next().await {
        assert_eq!(point?.latitude, point_count);
        point_count += 1;
    }
    Ok(Response::new(RouteSummary { point_count }))
}

async fn route_chat(
    request: Request<Streaming<RouteNote>>,
) -> Result<Response<Answers<RouteNote>>, Status> {
    let notes = request.into_inner().map(|note| {
        let RouteNote { location, message } = note?;
        Ok(RouteNote { location, message: format!("{message}, too") })
    });
    Ok(Response::new(Box::pin(notes)))
}

/// A tonic server on a thread of its own.
fn serve() -> SocketAddr {
    let (told, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap()).unwrap();
            let incoming = TcpListenerStream::new(listener);
            let server = tonic::transport::Server::builder();
            server.serve_with_incoming(Routes, incoming).await.unwrap();
        });
    });
    address.recv().unwrap()
}

type Client = tonic::client::Grpc<Service>;

fn client(address: SocketAddr) -> Client {
    let channel = Service::grpc(Engine::new().unwrap().client());
    Client::with_origin(channel, format!("http://{address}").parse().unwrap())
}

fn path(path: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(path)
}

const SAY_HELLO: &str = "/helloworld.Greeter/SayHello";

async fn greet(client: &mut Client, request: Request<Hello>) -> Result<Response<Hello>, Status> {
    client.ready().await.unwrap();
    client.unary(request, path(SAY_HELLO), ProstCodec::default()).await
}

fn hello(name: &str) -> Request<Hello> {
    Request::new(Hello { name: name.to_owned() })
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let within = async { tokio::time::timeout(Duration::from_secs(60), test).await };
    runtime.block_on(within).expect("a test takes less than a minute");
}

#[test]
fn a_call_is_answered_with_metadata_both_ways() {
    run(async {
        let mut client = client(serve());
        for round in 0..10 {
            let mut request = hello("Tonic");
            request.metadata_mut().insert("x-told", "yes".parse().unwrap());
            let response = greet(&mut client, request).await.unwrap();
            assert_eq!(response.metadata().get("x-heard").unwrap(), "yes");
            assert_eq!(response.get_ref().name, "Hello Tonic!", "{round}");
        }
    });
}

#[test]
fn a_status_comes_with_its_message() {
    run(async {
        let mut client = client(serve());
        let status = greet(&mut client, hello("unknown")).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "50 % of them"));
        client.ready().await.unwrap();
        let wrong = path("/helloworld.Greeter/SayGoodbye");
        let codec = ProstCodec::<Hello, Hello>::default();
        let status = client.unary(hello("x"), wrong, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    });
}

#[test]
fn a_limit_on_time_ends_a_call_and_the_next_goes_over_the_same_connection() {
    run(async {
        let mut client = client(serve());
        let mut request = hello("late");
        request.set_timeout(Duration::from_millis(200));
        let began = Instant::now();
        let status = greet(&mut client, request).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(greet(&mut client, hello("again")).await.is_ok());
    });
}

#[test]
fn a_server_streams() {
    run(async {
        let mut client = client(serve());
        for count in [0, 1, 5_000] {
            client.ready().await.unwrap();
            let list = path("/routeguide.RouteGuide/ListFeatures");
            let request = Request::new(Point { latitude: count, longitude: 0 });
            let codec = ProstCodec::<Point, Point>::default();
            let response = client.server_streaming(request, list, codec).await.unwrap();
            let mut points = response.into_inner();
            let mut seen = 0;
            while let Some(point) = points.message().await.unwrap() {
                assert_eq!((point.latitude, point.longitude), (seen, -seen));
                seen += 1;
            }
            assert_eq!(seen, count);
        }
    });
}

#[test]
fn a_stream_ends_with_a_status() {
    run(async {
        let mut client = client(serve());
        client.ready().await.unwrap();
        let request = Request::new(Point { latitude: 13, longitude: 0 });
        let list = path("/routeguide.RouteGuide/ListFeatures");
        let codec = ProstCodec::<Point, Point>::default();
        let response = client.server_streaming(request, list, codec).await.unwrap();
        let all: Vec<Result<Point, Status>> = response.into_inner().collect().await;
        let (last, points) = all.split_last().unwrap();
        assert_eq!(points.len(), 13);
        assert_eq!(last.as_ref().unwrap_err().code(), Code::OutOfRange);
    });
}

#[test]
fn a_client_streams() {
    run(async {
        let mut client = client(serve());
        for count in [0, 1, 20_000] {
            client.ready().await.unwrap();
            let points = (0..count).map(|at| Point { latitude: at, longitude: 0 });
            let request = Request::new(tokio_stream::iter(points));
            let record = path("/routeguide.RouteGuide/RecordRoute");
            let codec = ProstCodec::<Point, RouteSummary>::default();
            let response = client.client_streaming(request, record, codec).await.unwrap();
            assert_eq!(response.get_ref().point_count, count);
        }
    });
}

#[test]
fn both_stream_and_take_turns() {
    run(async {
        let mut client = client(serve());
        client.ready().await.unwrap();
        let (notes, outgoing) = mpsc::channel(1);
        let request = Request::new(ReceiverStream::new(outgoing));
        let chat = path("/routeguide.RouteGuide/RouteChat");
        let codec = ProstCodec::<RouteNote, RouteNote>::default();
        let response = client.streaming(request, chat, codec).await.unwrap();
        let mut incoming = response.into_inner();
        for round in 0..50 {
            let location = Some(Point { latitude: round, longitude: 0 });
            notes.send(RouteNote { location, message: "me".to_owned() }).await.unwrap();
            let note = incoming.message().await.unwrap().unwrap();
            assert_eq!(note.location.unwrap().latitude, round);
            assert_eq!(note.message, "me, too");
        }
        drop(notes);
        assert_eq!(incoming.message().await.unwrap(), None);
    });
}

#[test]
fn many_calls_at_once_share_a_connection() {
    run(async {
        let client = client(serve());
        let calls = (0..50).map(|number| {
            let mut client = client.clone();
            async move { greet(&mut client, hello(&number.to_string())).await }
        });
        let mut calls: Vec<_> = calls.map(Box::pin).collect();
        let mut answers = 0;
        poll_fn(|context| {
            calls.retain_mut(|call| match call.as_mut().poll(context) {
                Poll::Ready(answer) => {
                    answers += usize::from(answer.is_ok());
                    false
                }
                Poll::Pending => true,
            });
            if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!(answers, 50);
    });
}

/// As the clients that tonic generates do it with `new` and `with_interceptor`, which have no origin of their own.
#[test]
fn a_channel_has_an_origin_for_clients_that_have_none() {
    run(async {
        let origin = format!("http://{}", serve());
        let channel = Service::grpc(Engine::new().unwrap().client());
        let mut without = Client::new(channel.clone());
        assert_eq!(greet(&mut without, hello("x")).await.unwrap_err().code(), Code::Internal);
        for origin in [origin.clone(), format!("{origin}/")] {
            let channel = channel.clone().origin(&origin).unwrap();
            let told = |mut request: Request<()>| {
                request.metadata_mut().insert("x-told", "by a layer".parse().unwrap());
                Ok(request)
            };
            let layer = tonic::service::interceptor::InterceptedService::new(channel.clone(), told);
            let mut client = tonic::client::Grpc::new(layer);
            client.ready().await.unwrap();
            let codec = ProstCodec::<Hello, Hello>::default();
            let answer = client.unary(hello("Tonic"), path(SAY_HELLO), codec).await.unwrap();
            assert_eq!(answer.metadata().get("x-heard").unwrap(), "by a layer");
            let gone = Client::with_origin(channel, "http://127.0.0.1:1".parse().unwrap());
            let told = greet(&mut { gone }, hello("elsewhere")).await.unwrap_err();
            assert_eq!(told.code(), Code::Unavailable);
        }
        for wrong in ["", "/", "example.org", "http://", "http://a/b", "http://a//", "http://a?b"] {
            assert!(channel.clone().origin(wrong).is_err(), "{wrong}");
        }
    });
}

/// Generated clients ask of a body that it be made of nothing, for interceptors that refuse a call.
#[test]
fn a_layer_refuses_a_call_with_an_empty_body() {
    fn body<C>(_: &C) -> C::ResponseBody
    where
        C: tonic::client::GrpcService<tonic::body::Body>,
        C::ResponseBody: http_body::Body + Default,
    {
        C::ResponseBody::default()
    }
    run(async {
        let channel = Service::grpc(Engine::new().unwrap().client());
        assert!(http_body::Body::is_end_stream(&body(&channel)));
        let refuse = |_: Request<()>| Err::<Request<()>, _>(Status::permission_denied("not you"));
        let layer = tonic::service::interceptor::InterceptedService::new(channel, refuse);
        let mut client = tonic::client::Grpc::new(layer);
        client.ready().await.unwrap();
        let codec = ProstCodec::<Hello, Hello>::default();
        let told = client.unary(hello("x"), path(SAY_HELLO), codec).await.unwrap_err();
        assert_eq!(told.code(), Code::PermissionDenied);
    });
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    run(async {
        // Nothing listens there, and nothing else can be given it: a connection has it.
        let open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = std::net::TcpStream::connect(open.local_addr().unwrap()).unwrap();
        let gone = connected.local_addr().unwrap();
        let status = greet(&mut client(gone), hello("x")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    });
}
