//! HTTP client for the object store without TLS, which these tests do not need.

use async_trait::async_trait;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector as Tcp};
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};

#[derive(Debug)]
pub struct PlainHttpConnector;

impl HttpConnector for PlainHttpConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(PlainHttpService(Client::builder(TokioExecutor::new()).build_http())))
    }
}

#[derive(Debug)]
struct PlainHttpService(Client<Tcp, HttpRequestBody>);

#[async_trait]
impl HttpService for PlainHttpService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.request(request).await.map_err(|error| HttpError::new(HttpErrorKind::Request, error))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
        let body = Full::new(body.to_bytes()).map_err(|never| match never {});
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}
