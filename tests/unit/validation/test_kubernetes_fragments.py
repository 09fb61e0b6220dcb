"""`validate` refuses Kubernetes' own fields in a file where an API server would, and names the field.

Tests may only add to the lists.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from launcher.errors import SpecError
from launcher.validation import loader
from tests.paths import SPECS

CONTAINERS = "podTemplate: {spec: {containers: [{name: tensorflow, %s}]}}"
SECRET = "env: [{name: A, valueFrom: {secretKeyRef: %s}}]"
VOLUME = "volumes: [{name: data, %s}]"

# ruff: noqa: E501 - one case a line
WRONG = [
    # env and envFrom
    (SECRET % "{name: x}", "env[0].valueFrom.secretKeyRef.key", "missing"),
    (SECRET % "{key: x}", "env[0].valueFrom.secretKeyRef.name", "missing"),
    (SECRET % "{name: x, key: ''}", "env[0].valueFrom.secretKeyRef.key", "expected a string, not nothing"),
    (SECRET % "{name: X_y, key: k}", "env[0].valueFrom.secretKeyRef.name", "expected lower-case"),
    (SECRET % "{name: 5, key: k}", "env[0].valueFrom.secretKeyRef.name", "put it in quotes"),
    (SECRET % "{nam: x, key: k}", "env[0].valueFrom.secretKeyRef.nam", "did you mean name?"),
    (SECRET % "[]", "env[0].valueFrom.secretKeyRef", "expected a mapping"),
    (SECRET % "null", "env[0].valueFrom", "one of them must be given"),
    (SECRET % "{name: x, key: k, optional: 'no'}", "env[0].valueFrom.secretKeyRef.optional", "true or false"),
    ("env: [{name: A, valueFrom: {}}]", "env[0].valueFrom", "one of them must be given"),
    ("env: [{name: A, valueFrom: {secret: {}}}]", "env[0].valueFrom.secret", "did you mean secretKeyRef?"),
    (
        "env: [{name: A, valueFrom: {configMapKeyRef: {name: a}}}]",
        "env[0].valueFrom.configMapKeyRef.key",
        "miss",
    ),
    ("env: [{name: A, valueFrom: {fieldRef: {}}}]", "env[0].valueFrom.fieldRef.fieldPath", "missing"),
    (
        "env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}]",
        "env[0].valueFrom.fieldRef.fieldPath",
        "pod",
    ),
    (
        "env: [{name: A, valueFrom: {resourceFieldRef: {}}}]",
        "env[0].valueFrom.resourceFieldRef.resource",
        "missing",
    ),
    (
        "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: x}}}]",
        "env[0].valueFrom.resourceFieldRef.divisor",
        "expected a quantity",
    ),
    (
        "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: a, key: b}}}]",
        "env[0].valueFrom",
        "expected one of fieldRef or secretKeyRef, not both",
    ),
    ("envFrom: [{}]", "envFrom[0]", "expected configMapRef or secretRef"),
    ("envFrom: [{prefix: A_}]", "envFrom[0]", "expected configMapRef or secretRef"),
    ("envFrom: [{secretRef: {}}]", "envFrom[0].secretRef.name", "missing"),
    ("envFrom: [{configMapRef: settings}]", "envFrom[0].configMapRef", "expected a mapping"),
    ("envFrom: [{secretRef: {name: a}, configMapRef: {name: b}}]", "envFrom[0]", "not both"),
    # volumes and their mounts
    (VOLUME % "hostPath: {}", "volumes[0].hostPath.path", "missing"),
    (VOLUME % "hostPath: {path: ''}", "volumes[0].hostPath.path", "expected a string"),
    (VOLUME % "hostPath: /data", "volumes[0].hostPath", "expected a mapping"),
    (VOLUME % "hostPath: {path: /a, type: Folder}", "volumes[0].hostPath.type", 'not "Folder"'),
    (VOLUME % "hostPath: {path: /a/../../etc}", "volumes[0].hostPath.path", "without '..'"),
    (VOLUME % "persistentVolumeClaim: {}", "volumes[0].persistentVolumeClaim.claimName", "missing"),
    (
        VOLUME % "persistentVolumeClaim: {claimName: ../x}",
        "volumes[0].persistentVolumeClaim.claimName",
        "expected lower-case",
    ),
    (
        VOLUME % "persistentVolumeClaim: {claim: x}",
        "volumes[0].persistentVolumeClaim.claim",
        "did you mean claimName?",
    ),
    (VOLUME % "configMap: {name: a, items: [{key: k}]}", "volumes[0].configMap.items[0].path", "missing"),
    (
        VOLUME % "configMap: {name: a, items: [{key: k, path: ../x}]}",
        "volumes[0].configMap.items[0].path",
        "'..'",
    ),
    (
        VOLUME % "configMap: {name: a, items: [{key: k, path: /x}]}",
        "volumes[0].configMap.items[0].path",
        "below",
    ),
    (
        VOLUME % "configMap: {name: a, defaultMode: '0644'}",
        "volumes[0].configMap.defaultMode",
        "integer",
    ),
    (
        VOLUME % "configMap: {name: a, defaultMode: 644}",
        "volumes[0].configMap.defaultMode",
        "expected a mode",
    ),
    (VOLUME % "configMap: {}", "volumes[0].configMap.name", "missing"),
    (VOLUME % "emptyDir: {sizeLimit: big}", "volumes[0].emptyDir.sizeLimit", "expected a quantity"),
    (VOLUME % "emptyDir: []", "volumes[0].emptyDir", "expected a mapping"),
    (VOLUME % "nfs: {path: /a}", "volumes[0].nfs.server", "missing"),
    (VOLUME % "csi: {}", "volumes[0].csi.driver", "missing"),
    (
        VOLUME % "emptyDir: {}, hostPath: {path: /a}",
        "volumes[0]",
        "expected one of emptyDir or hostPath, not both",
    ),
    (VOLUME % "empty: {}", "volumes[0].empty", "did you mean emptyDir?"),
    (VOLUME % "projected: {sources: [{}]}", "volumes[0].projected.sources[0]", "one of them must be given"),
    (VOLUME % "projected: {sources: {}}", "volumes[0].projected.sources", "expected a list"),
    (
        "volumes: [{name: a}]\nvolumeMounts: [{name: a, mountPath: /a, subPath: ../b}]",
        "volumeMounts[0].subPath",
        "below the volume",
    ),
    (
        "volumes: [{name: a}]\nvolumeMounts: [{name: a, mountPath: /a, subPath: /b}]",
        "volumeMounts[0].subPath",
        "below the volume",
    ),
    # who goes where
    ("tolerations: [{operator: Equals}]", "tolerations[0].operator", "did you mean Equal?"),
    ("tolerations: [{key: a, effect: noschedule}]", "tolerations[0].effect", "expected NoSchedule"),
    ("tolerations: [{tolerationSeconds: '5'}]", "tolerations[0].tolerationSeconds", "integer"),
    ("affinity: {nodeAffinity: {required: {}}}", "affinity.nodeAffinity.required", "unknown field"),
    ("affinity: {podAffinity: []}", "affinity.podAffinity", "expected a mapping"),
    (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {}}}",
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        "missing",
    ),
    (
        "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}",
        "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
        "missing",
    ),
    ("imagePullSecrets: [{name: A_B}]", "imagePullSecrets[0].name", "expected lower-case"),
    # podTemplate
    (CONTAINERS % "command: [5]", "podTemplate.spec.containers[0].command[0]", "expected a string, not 5"),
    (CONTAINERS % "command: run", "podTemplate.spec.containers[0].command", "expected a list"),
    (
        CONTAINERS % "imagePullPolicy: always",
        "podTemplate.spec.containers[0].imagePullPolicy",
        "did you mean Always?",
    ),
    (
        CONTAINERS % "ports: [{containerPort: http}]",
        "podTemplate.spec.containers[0].ports[0].containerPort",
        "integer",
    ),
    (
        CONTAINERS % "ports: [{containerPort: 70000}]",
        "podTemplate.spec.containers[0].ports[0].containerPort",
        "a port",
    ),
    (
        CONTAINERS % "ports: [{containerPort: 80, protocol: tcp}]",
        "podTemplate.spec.containers[0].ports[0].protocol",
        "expected TCP",
    ),
    (
        CONTAINERS % "livenessProbe: {}",
        "podTemplate.spec.containers[0].livenessProbe",
        "one of them must be given",
    ),
    (
        CONTAINERS % "livenessProbe: {httpGet: {path: /}}",
        "podTemplate.spec.containers[0].livenessProbe.httpGet.port",
        "missing",
    ),
    (
        CONTAINERS % "livenessProbe: {tcpSocket: {port: 1.5}}",
        "podTemplate.spec.containers[0].livenessProbe.tcpSocket.port",
        "integer or a string",
    ),
    (
        CONTAINERS % "livenessProbe: {periodSeconds: 0, exec: {command: [a]}}",
        "podTemplate.spec.containers[0].livenessProbe.periodSeconds",
        "at least 1",
    ),
    (
        CONTAINERS % "lifecycle: {preStop: {}}",
        "podTemplate.spec.containers[0].lifecycle.preStop",
        "one of them",
    ),
    (
        CONTAINERS % "securityContext: {runAsUser: root}",
        "podTemplate.spec.containers[0].securityContext.runAsUser",
        "integer",
    ),
    (
        CONTAINERS % "securityContext: {privileged: 1}",
        "podTemplate.spec.containers[0].securityContext.privileged",
        "t",
    ),
    (CONTAINERS % "env: [{name: A, value: 5}]", "podTemplate.spec.containers[0].env[0].value", "in quotes"),
    (
        CONTAINERS % "env: [{name: 'A=', value: x}]",
        "podTemplate.spec.containers[0].env[0].name",
        "expected printable",
    ),
    (
        CONTAINERS % "env: [{name: A, valueFrom: {secretKeyRef: {name: x}}}]",
        "podTemplate.spec.containers[0].env[0].valueFrom.secretKeyRef.key",
        "missing",
    ),
    (
        CONTAINERS % "resources: {limits: {cpu: lots}}",
        "podTemplate.spec.containers[0].resources.limits.cpu",
        "quantity",
    ),
    (
        CONTAINERS % "resources: {limit: {cpu: 1}}",
        "podTemplate.spec.containers[0].resources.limit",
        "did you mean lim",
    ),
    (
        CONTAINERS % "volumeMounts: [{mountPath: /a}]",
        "podTemplate.spec.containers[0].volumeMounts[0].name",
        "missing",
    ),
    (
        "podTemplate: {spec: {terminationGracePeriodSeconds: x}}",
        "podTemplate.spec.terminationGracePeriodSeconds",
        "x",
    ),
    (
        "podTemplate: {spec: {terminationGracePeriodSeconds: -1}}",
        "podTemplate.spec.terminationGracePeriodSeconds",
        "0",
    ),
    ("podTemplate: {spec: {hostNetwork: 'yes'}}", "podTemplate.spec.hostNetwork", "true or false"),
    (
        "podTemplate: {spec: {dnsPolicy: Clusterfirst}}",
        "podTemplate.spec.dnsPolicy",
        "did you mean ClusterFirst?",
    ),
    (
        "podTemplate: {spec: {nodeSelectors: {}}}",
        "podTemplate.spec.nodeSelectors",
        "did you mean nodeSelector?",
    ),
    ("podTemplate: {spec: {nodeSelector: {a: 1}}}", "podTemplate.spec.nodeSelector.a", "put it in quotes"),
    (
        "podTemplate: {spec: {priority: 3000000000}}",
        "podTemplate.spec.priority",
        "expected at most 2147483647",
    ),
    (
        "podTemplate: {spec: {volumes: [{name: a, secret: {secretName: A}}]}}",
        "podTemplate.spec.volumes[0].secret",
        "lo",
    ),
    (
        "podTemplate: {spec: {volumes: [{name: a, hostPath: {}}]}}",
        "podTemplate.spec.volumes[0].hostPath.path",
        "missi",
    ),
    (
        "podTemplate: {spec: {initContainers: [{name: A_b, image: c}]}}",
        "podTemplate.spec.initContainers[0].name",
        "low",
    ),
    (
        "podTemplate: {spec: {hostAliases: [{ip: 1.2.3.4, hostnames: a}]}}",
        "podTemplate.spec.hostAliases[0].host",
        "list",
    ),
    (
        "podTemplate: {spec: {securityContext: {fsGroup: '1'}}}",
        "podTemplate.spec.securityContext.fsGroup",
        "integer",
    ),
    (
        "podTemplate: {spec: {securityContext: {sysctls: [{name: a}]}}}",
        "podTemplate.spec.securityContext.sysctls",
        "m",
    ),
    ("podTemplate: {metadata: {label: {}}}", "podTemplate.metadata.label", "did you mean labels?"),
    ("podTemplate: {metadata: {finalizers: x}}", "podTemplate.metadata.finalizers", "expected a list"),
]

RIGHT = [
    "env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k, optional: true}}}]",
    "env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a/b']\", apiVersion: v1}}}]",
    "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}]",
    "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1}}}]",
    "env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: k}, fieldRef: null}}]",
    "envFrom: [{prefix: A_, configMapRef: {name: a.b}}]",
    "volumes: [{name: a}]",
    "volumes: [{name: a, emptyDir: null, hostPath: {path: /a, type: ''}}]",
    "volumes: [{name: a, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]",
    "volumes: [{name: a, configMap: {name: b, defaultMode: 420, items: [{key: k, path: a/b..c}]}}]",
    "volumes: [{name: a, projected: {sources: [{secret: {name: s}}, {serviceAccountToken: {path: t}}]}}]",
    "volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]",
    "volumes: [{name: a}]\nvolumeMounts: [{name: a, mountPath: /a, subPathExpr: $(POD)/x}]",
    "tolerations: [{operator: Exists}, {key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 5}]",
    "podTemplate: {spec: {containers: [{name: tensorflow, livenessProbe: {tcpSocket: {port: tfjob-port}}}]}}",
    "podTemplate: {spec: {containers: [{name: tensorflow, readinessProbe: {grpc: {port: 5}, periodSeconds: 3}}]}}",
    "podTemplate: {spec: {containers: [{name: tensorflow}, {name: side, image: a, args: [x]}]}}",
    "podTemplate: {spec: {terminationGracePeriodSeconds: null, securityContext: {$patch: replace, runAsUser: 5}}}",
    "podTemplate: {spec: {tolerations: [{$patch: replace}, {key: a}]}}",
    "podTemplate: {spec: {volumes: [{name: a, $patch: delete}]}}",
    # Fields that one patch leaves out are in the one that it is merged over.
    "volumes: [{name: a, hostPath: {path: /a}}]\npodTemplate: {spec: {volumes: [{name: a, hostPath: {type: File}}]}}",
    # One source replaces another.
    "volumes: [{name: a, emptyDir: {}}]\npodTemplate: {spec: {volumes: [{name: a, $retainKeys: [name, hostPath], hostPath: {path: /b}}]}}",
]


def cluster(fragment: str, *, everywhere: str = "") -> dict[str, Any]:
    spec = {"strategy": "OneDevice", "program": {"entrypoint": "a:B"}, "chief": yaml.safe_load(fragment)}
    if everywhere:
        spec["template"] = yaml.safe_load(everywhere)
    metadata = {"name": "run"}
    return {
        "apiVersion": "launcher/v1alpha1",
        "kind": "TrainingCluster",
        "metadata": metadata,
        "spec": spec,
    }


def refused(document: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(SpecError) as caught:
        loader.check(document)
    return [(problem.path, problem.message) for problem in caught.value.problems]


def test_the_corpus_has_no_fewer_than_it_had() -> None:
    assert len({fragment for fragment, _, _ in WRONG}) >= 86
    assert len(set(RIGHT)) >= 22


@pytest.mark.parametrize(("fragment", "path", "message"), WRONG, ids=[wrong for wrong, _, _ in WRONG])
def test_a_wrong_fragment(fragment: str, path: str, message: str) -> None:
    ((place, problem),) = refused(cluster(fragment))
    assert place.startswith(f"spec.chief.{path}")
    assert message in problem


@pytest.mark.parametrize("fragment", RIGHT)
def test_a_right_fragment(fragment: str) -> None:
    loader.check(cluster(fragment))


@pytest.mark.parametrize("fragment", [wrong for wrong, _, _ in WRONG if wrong.startswith("podTemplate")])
def test_what_every_role_is_given_is_said_once_where_it_stands(fragment: str) -> None:
    document = cluster("{}", everywhere=fragment)
    document["spec"]["evaluator"] = {}
    ((place, _),) = refused(document)
    assert place.startswith("spec.template.podTemplate.")


def test_what_two_patches_come_to_is_said_at_the_roles_own() -> None:
    everywhere = "podTemplate: {spec: {volumes: [{name: a, hostPath: {path: /a}}]}}"
    loader.check(cluster("{}", everywhere=everywhere))
    role_patch = "podTemplate: {spec: {volumes: [{name: a, emptyDir: {}}]}}"
    ((place, problem),) = refused(cluster(role_patch, everywhere=everywhere))
    assert place == "spec.chief.podTemplate.spec.volumes[0]"
    assert problem == "expected one of hostPath or emptyDir, not both"


def test_a_tensorboard_too() -> None:
    document = cluster("{}")
    document["spec"]["tensorboard"] = {"tolerations": [{"effect": "Never"}], "affinity": {"node": {}}}
    document["spec"]["modelDir"] = "/model"
    assert {path for path, _ in refused(document)} == {
        "spec.tensorboard.tolerations[0].effect",
        "spec.tensorboard.affinity.node",
    }


def test_a_file_without_fragments_reads_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    from launcher.pod_spec import pod_fields

    def read() -> None:
        pytest.fail("the fields of a pod were read for nothing")

    monkeypatch.setattr(pod_fields, "types", read)
    loader.load(str(SPECS / "valid" / "one-task-mirrored.yaml"))
