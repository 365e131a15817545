"""Without keys no page of another web site uses the service through the browser of somebody who can reach it."""

import pytest

from backend.api.middleware import is_known_host
from backend.api.request_context import ApiOptions
from tests.api import checks
from tests.api.conftest import connect

TEXTS = {"input": "hola", "model": "bundled"}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8000", "127.0.0.1", "10.2.3.4:8000", "[::1]:8000", "[fe80::1]", "localhost:8000", "LocalHost",
        "financia_backend:8000", "app.localhost", "printer.local", "financia.default.svc",
        "financia.default.svc.cluster.local:8000", "host.docker.internal:8000", "localhost.", "",
    ],
)  # fmt: skip
def test_names_of_this_service(host):
    """Addresses, names without a dot, and suffixes that nobody can register."""
    assert is_known_host(host.encode(), frozenset())


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example:8000", "127.0.0.1.nip.io:8000", "notlocal.example.internal.com",
        "127.0.0.1:8000@attacker.example", "127.0.0.1/attacker.example", "[::1].attacker.example",
        "attacker.example.",
    ],
)  # fmt: skip
def test_names_that_anybody_may_own(host):
    assert not is_known_host(host.encode(), frozenset(("financia.example",)))


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_another_name(services, method):
    """421, with the settings that help."""
    async with connect(services) as client:
        answer = await client.request(method, "/v1/models", headers={"Host": "attacker.example:8000"})

    checks.problem(answer, 421, "wrong_host", "attacker.example:8000", "ALLOWED_HOSTS", "API_KEYS")


@pytest.mark.parametrize(
    ("options", "path"),
    [
        pytest.param(ApiOptions(), "/health/live", id="probes"),
        pytest.param(ApiOptions(), "/metrics", id="scrapes"),
        pytest.param(ApiOptions(allowed_hosts=("Financia.Example",)), "/v1/models", id="allowed"),
        pytest.param(ApiOptions(allowed_hosts=("*",)), "/v1/models", id="any"),
    ],
)
async def test_names_that_are_allowed(services, options, path):
    async with connect(services, options) as client:
        assert 200 == (await client.get(path, headers={"Host": "financia.example"})).status_code


async def test_keys_are_enough(services):
    """With keys the service may have any name: a page does not know them."""
    options = ApiOptions(api_keys=("secret",))
    headers = {"Host": "attacker.example", "Sec-Fetch-Site": "cross-site", "Authorization": "Bearer secret"}
    async with connect(services, options) as client:
        assert 200 == (await client.post("/v1/embeddings", json=TEXTS, headers=headers)).status_code


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Sec-Fetch-Site": "cross-site", "Origin": "https://attacker.example"}, id="said-by-the-browser"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="without-an-origin"),
        pytest.param({"Origin": "https://attacker.example"}, id="an-origin-alone"),
        pytest.param({"Origin": "null"}, id="a-sandboxed-frame"),
        pytest.param({"Origin": "http://test.attacker.example"}, id="a-name-that-begins-alike"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_changes_of_another_sites_page(services, headers, method):
    """403 before the body is read, with the settings that help."""
    async with connect(services) as client:
        answer = await client.request(method, "/v1/jobs/x", headers=headers, content=b"a=b")

    checks.problem(answer, 403, "cross_site", headers.get("Origin", "another site"), "CORS_ORIGINS", "API_KEYS")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no-browser"),
        pytest.param({"Sec-Fetch-Site": "same-origin", "Origin": "https://behind-a-proxy.example"}, id="own-page"),
        pytest.param({"Sec-Fetch-Site": "none"}, id="a-person"),
        pytest.param({"Origin": "http://test:3000"}, id="same-host"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Origin": "https://app.example"}, id="allowed-by-cors"),
    ],
)
async def test_changes_that_are_wanted(services, headers):
    async with connect(services, ApiOptions(cors_origins=("https://app.example",))) as client:
        assert 200 == (await client.post("/v1/embeddings", json=TEXTS, headers=headers)).status_code


async def test_reading_is_left_to_cors(services):
    """A cross-site GET changes nothing, and the browser hides its answer."""
    async with connect(services) as client:
        assert 200 == (await client.get("/v1/models", headers={"Sec-Fetch-Site": "cross-site"})).status_code


async def test_a_preflight(services):
    """CORS answers it before anything else."""
    headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    async with connect(services, ApiOptions(cors_origins=("https://app.example",))) as client:
        answer = await client.options("/v1/embeddings", headers=headers)

    assert (200, "https://app.example") == (answer.status_code, answer.headers["access-control-allow-origin"])
