// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI is the socket on which a runtime serves the kubelet.
type CRI struct {
	Socket  string
	Runtime string // RuntimeContainerd, RuntimeCRIO
}

// Name implements Source.
func (s CRI) Name() string { return "CRI (" + s.Socket + ")" }

var _ Source = CRI{}

// Containers implements Source. A pod's sandbox is a container called
// SandboxName.
func (s CRI) Containers(ctx context.Context) ([]Info, error) {
	uid, mode, err := owner(s.Socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if mode&fs.ModeSocket == 0 {
		return nil, errNotSocket
	}
	conn, err := grpc.NewClient("unix://"+s.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxSourceBody)),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	list, err := s.list(ctx, cri.NewRuntimeServiceClient(conn))
	if status.Code(err) == codes.Unimplemented {
		// containerd with its CRI plugin off, as Docker installs it.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Owner = uid
	}
	return list, nil
}

func (s CRI) list(ctx context.Context, client cri.RuntimeServiceClient) ([]Info, error) {
	sandboxes, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return nil, err
	}
	containers, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return nil, err
	}
	if n := len(sandboxes.GetItems()) + len(containers.GetContainers()); n > maxSourceList {
		return nil, fmt.Errorf("%d containers are more than %d", n, maxSourceList)
	}
	pods := make(map[string]*cri.PodSandbox, len(sandboxes.GetItems()))
	var list []Info
	for _, p := range sandboxes.GetItems() {
		pods[p.GetId()] = p
		c := s.container(p.GetId(), p, p.GetCreatedAt())
		c.Name = SandboxName
		c.label(p.GetLabels())
		list = append(list, Info{Container: c})
	}
	for _, k := range containers.GetContainers() {
		c := s.container(k.GetId(), pods[k.GetPodSandboxId()], k.GetCreatedAt())
		c.kube(k.GetLabels())
		c.Name = cmp.Or(k.GetMetadata().GetName(), c.Name)
		c.Image = cmp.Or(k.GetImage().GetUserSpecifiedImage(), k.GetImage().GetImage())
		c.label(pods[k.GetPodSandboxId()].GetLabels()) // app=web is the pod's, as kubectl has it
		c.label(k.GetLabels())
		list = append(list, Info{Container: c})
	}
	return list, nil
}

// container is what a container has from its pod, which may be nil.
func (s CRI) container(id string, pod *cri.PodSandbox, created int64) Container {
	m := pod.GetMetadata()
	c := Container{ID: id, Runtime: s.Runtime, Pod: m.GetName(), PodNamespace: m.GetNamespace(), PodUID: m.GetUid()}
	if created > 0 {
		c.Created = time.Unix(0, created).UTC()
	}
	return c
}
